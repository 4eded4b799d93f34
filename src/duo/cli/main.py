"""The program `duo`: without a subcommand it runs; every failure is one line and exit code 1."""

from __future__ import annotations

import os
import sys

import click


def _commands() -> dict[str, click.Command]:
    from duo.cli.run import command as run
    from duo.cli.trace import trace
    from duo.cli.widen import widen

    return {"run": run, "trace": trace, "widen": widen}


class Program(click.Group):
    """Options without a command belong to `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if (not args and not sys.stdin.isatty()) or (args and args[0].startswith("-") and args[0] != "--version"):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _commands().get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _commands():
            raise click.ClickException(f'there is no command {args[0]}; for a prompt write: duo -p "{args[0]} ..."')
        return super().resolve_command(ctx, args)


@click.group(
    cls=Program,
    name="duo",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name="duo", message="duo %(version)s")
def program() -> None:
    """Asynchronous speculative decoding for llama.cpp models.

    \b
      duo -p "Once upon a time"     the demo pair writes
      duo -h                        all options of a run
    """


def main(args: list[str] | None = None) -> int:
    """Entry point. Returns the exit code: 0, 1 (the user's mistake or a failed model), 130 (Ctrl-C)."""
    try:
        from duo.errors import DuoError
    except ImportError as e:
        print(f"duo: {e}", file=sys.stderr)
        return 1
    try:
        code = program.main(args, prog_name="duo", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as e:
        print(e.ctx.get_help() if e.ctx is not None else "duo --help")
        return 0
    except click.ClickException as e:
        message = e.format_message().removesuffix(".")
        print(f"duo: {message[:1].lower() + message[1:]}", file=sys.stderr)
    except DuoError as e:
        print(f"duo: {e}", file=sys.stderr)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The reader went away (head, less): nothing to say, and nothing to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
