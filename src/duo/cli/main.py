"""The program `duo`: without a subcommand it runs; every failure is one line and exit code 1."""

from __future__ import annotations

import io
import os
import sys
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn, TextIO

import click
from click.shell_completion import CompletionItem

from duo import __version__

# Name of each command, and where it is: only the one that runs is imported.
COMMANDS = {
    "run": "run.command",
    "chat": "chat.command",
    "bench": "bench.command",
    "check": "check.command",
    "completion": "completion.completion",
    "devices": "devices.devices",
    "doctor": "doctor.doctor",
    "draft-host": "host.draft_host",
    "pairs": "pairs.pairs",
    "rpc-server": "rpc_server.rpc_server",
    "trace": "trace.trace",
    "tune": "tune.command",
    "verify-host": "host.verify_host",
    "widen": "widen.widen",
}


def command_named(name: str) -> click.Command | None:
    """None: there is no such command."""
    module, _, member = COMMANDS.get(name, "").partition(".")
    found: click.Command | None = getattr(import_module(f"duo.cli.commands.{module}"), member) if module else None
    return found


class ReaderGone(Exception):  # noqa: N818 - no error
    """Standard output's reader went away (head, less): no failure. click would make it exit code 1."""


class Program(click.Group):
    """Options without a command belong to `run`."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderGone from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if (not args and not ctx.resilient_parsing and sys.stdin is not None and not sys.stdin.isatty()) or (
            args and args[0].startswith("-") and args[0] != "--version"
        ):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = super().shell_complete(ctx, incomplete)
        run = command_named("run") if incomplete.startswith("-") else None
        return found if run is None else found + run.shell_complete(ctx, incomplete)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command_named(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            raise click.ClickException(f'there is no command {args[0]}; for a prompt write: duo -p "{args[0]} ..."')
        return super().resolve_command(ctx, args)


@click.group(
    cls=Program,
    name="duo",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, message="duo %(version)s")
def program() -> None:
    """Asynchronous speculative decoding for llama.cpp models.

    \b
      duo -p "Once upon a time"     the demo pair writes
      duo chat                      talk with it
      duo -m 70B.gguf -md 8B.gguf   your own pair, and the prompt on standard input
      duo run -h                    all options of a run

    Exit codes: 0; 1: a mistake or a failure, said in one line; 130: Ctrl-C.
    """


def leave() -> NoReturn:
    """Entry point of the program."""
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if any(t.daemon for t in threading.enumerate()):
        os._exit(code)  # one that comes out of libggml or gRPC while the interpreter goes would abort the process
    sys.exit(code)


def main(args: list[str] | None = None) -> int:
    """Runs a command. Returns the exit code: 0, 1 (the user's mistake or a failed model), 130 (Ctrl-C)."""
    from duo.errors import DuoError
    from duo.support.wording import one_line

    _open_streams()
    try:
        code = program.main(args, prog_name="duo", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as e:
        print(e.ctx.get_help() if e.ctx is not None else "duo --help")
        return 0
    except click.ClickException as e:
        message = one_line(e.format_message()).removesuffix(".")
        print(f"duo: {message[:1].lower() + message[1:]}", file=sys.stderr)
    except DuoError as e:
        print(f"duo: {one_line(e)}", file=sys.stderr)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (ReaderGone, BrokenPipeError):
        _to_nowhere(sys.stdout)  # so that nothing is left to flush at exit
        return 0
    except OSError as e:
        _to_nowhere(sys.stdout)
        print(f"duo: the output cannot be written ({e.strerror})", file=sys.stderr)
    return 1


def _open_streams() -> None:
    """Standard streams that a caller closed go to nowhere; a terminal that lacks a character shows another."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open as long as the program
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _to_nowhere(stream: TextIO) -> None:
    with suppress(OSError):  # no file behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    leave()
