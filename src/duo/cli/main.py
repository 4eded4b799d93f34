"""The program `duo`. Without a subcommand it generates text. Every failure is one line and exit code 1."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import threading
from collections.abc import KeysView
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn, TextIO

import click
from click.shell_completion import CompletionItem

from duo import __version__
from duo.cli.messages_stream import ignore_a_full_disk
from duo.cli.nearest import nearest

# pydantic would look for plugins in all installed packages: 20 ms of each start.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

# Each command: its module and member, and its line in the list. Only the command that runs is imported.
COMMANDS = {
    "run": ("run.command", "Write text with a target model and a draft model."),
    "chat": ("chat.command", "Talk with a model, turn by turn."),
    "bench": ("bench.command", "Compare plain, sync and async decoding."),
    "check": ("check.command", "Say whether a draft fits a target, and where both would go."),
    "completion": ("completion.completion", "Print the shell completion for bash, zsh or fish."),
    "dev": ("dev.dev", "Make models for tests and benchmarks."),
    "devices": ("devices.devices", "List the devices and the CPU's kernels."),
    "doctor": ("doctor.doctor", "Check the CPU kernels on a model: equal bits, accuracy, speed."),
    "draft-host": ("host.draft_host", "Run the draft for clients on other machines."),
    "make-draft": ("make_draft.command", "Make a draft from the target's own file."),
    "pack": ("pack.pack", "Pack a model's weights once, so that later starts are fast."),
    "pairs": ("pairs.pairs", "List the pairs of models that duo knows by name."),
    "prove": ("prove.command", "Count texts that differ with drafts, in a batch, or on a server."),
    "race": ("race.command", "Show plain decoding and a pair writing the same text, side by side."),
    "rpc-server": ("rpc_server.rpc_server", "Serve this machine's devices over GGML RPC."),
    "serve": ("serve.command", "Serve a pair over HTTP, as llama-server, OpenAI and Anthropic."),
    "trace": ("trace.trace", "Summarise and draw a trace."),
    "train-draft": ("train.train_draft", "Train a small draft model for a target."),
    "train-head": ("train.train_head", "Train an EAGLE-3 draft head for a target."),
    "tune": ("tune.command", "Measure a pair and recommend options for it."),
    "verify-host": ("host.verify_host", "Run the target for clients on other machines."),
}
MOVED = {"widen": "dev widen"}
HELP = ["-h", "--help"]
# What follows may be anything.
OF_TEXT = (
    "-p", "--prompt", "-f", "--file", "-sys", "--system-prompt", "-r", "--reverse-prompt", "--stop", "--grammar", "-j",
    "--json-schema",
)  # fmt: skip


def command_named(name: str) -> click.Command | None:
    """The command of this name; None: there is none."""
    if name not in COMMANDS:
        return None
    module, _, member = COMMANDS[name][0].partition(".")
    command: click.Command = getattr(import_module(f"duo.cli.commands.{module}"), member)
    return command


class ReaderGone(Exception):  # noqa: N818 - no error
    """The reader of standard output has gone (head, less). This is no failure, but click would exit with code 1."""


def _names(args: list[str]) -> KeysView[str]:
    """The names of the options, in order and as llama.cpp spells them."""
    options = [arg.partition("=")[0] for before, arg in zip(["", *args], args, strict=False) if before not in OF_TEXT]
    return dict.fromkeys(name.replace("_", "-") if name.startswith("--") else name for name in options).keys()


def _command_of(args: list[str]) -> str:
    """The command for options without one: run, unless some can only be meant for a conversation or the server.

    Raises:
        ClickException: Options of the server and a prompt.
    """
    from duo.cli.llama_cpp_options import IN_CHAT, IN_RUN, IN_SERVE, OF_PROMPT

    names = _names(args)
    turns = bool(names & {"-i", "--interactive"})
    if names & IN_RUN or (turns and names & {"-r", "--reverse-prompt"}):
        return "run"
    if served := [name for name in names if name in IN_SERVE]:
        if prompts := [name for name in names if name in OF_PROMPT]:
            raise click.ClickException(
                f"{served[0]} is an option of the server, which takes no {prompts[0]}; leave one of them out"
            )
        return "serve"
    return "chat" if turns or names & IN_CHAT else "run"


def _unsaid(args: list[str]) -> str | None:
    """The option that makes a chat of options without a command, unless one says so by its name."""
    from duo.cli.llama_cpp_options import IN_CHAT, SAYS_CHAT

    names = _names(args)
    return None if names & SAYS_CHAT else next((name for name in names if name in IN_CHAT), None)


class Program(click.Group):
    """Options without a command are options of `run`, `chat` or `serve`, but for those of the help and the version."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderGone from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if (not args and not ctx.resilient_parsing and sys.stdin is not None and not sys.stdin.isatty()) or (
            args and args[0].startswith("-") and args[0] not in (*HELP, "--usage", "--version")
        ):
            command = _command_of(args)
            if command == "chat" and not ctx.resilient_parsing and (why := _unsaid(args)):
                click.echo(f"duo: {why} is for conversations, so this is duo chat", err=True)
            args = [command, *args]
        return super().parse_args(ctx, ["--help"] if args[:1] == ["--usage"] else args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click's own list would import every command.
        items = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        items += click.Command.shell_complete(self, ctx, incomplete)
        run = command_named("run") if incomplete.startswith("-") else None
        return items if run is None else items + run.shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command_named(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in MOVED:
            raise click.ClickException(f"duo {args[0]} is now duo {MOVED[args[0]]}")
        if args[0] not in COMMANDS:
            close = nearest(args[0], [*COMMANDS, *MOVED])
            how = f'to give a prompt write: duo -p "{args[0]} ..."'
            if close:
                more = len(args) > 1 and not args[1].startswith("-")  # a prompt, perhaps
                how = f"did you mean duo {close}?" + (f" ({how})" if more else "")
            raise click.ClickException(f"unknown command {args[0]}; {how}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Program,
    name="duo",
    no_args_is_help=True,
    context_settings={"help_option_names": HELP, "max_content_width": 120},
)
@click.version_option(__version__, message="duo %(version)s")
def program() -> None:
    """Asynchronous speculative decoding for llama.cpp models.

    \b
      duo -p "Once upon a time"     generate text with the demo pair
      duo chat                      talk with it
      duo -m 70B.gguf -md 8B.gguf   your own pair; the prompt comes from standard input
      duo run -h                    options of a run (the word run may be left out)
      duo COMMAND -h                options of a command

    Exit codes: 0; 1: an error, printed as one line; 2: duo prove found a difference; 130: Ctrl-C.
    """


def leave() -> NoReturn:
    """Entry point of the program."""
    # Objects that imports make stay alive. Searching them for garbage takes a fifth of a server's start.
    gc.set_threshold(20_000)
    ignore_a_full_disk()
    code = 130
    with suppress(KeyboardInterrupt):
        code = main()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    # All is written. A Ctrl-C while the interpreter ends would only print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    gc.freeze()  # the memory goes with the process, so the interpreter need not look for garbage at its end
    if any(t.daemon for t in threading.enumerate()):
        os._exit(code)  # a thread that returns from libggml or gRPC during shutdown would abort the process
    sys.exit(code)


def main(args: list[str] | None = None) -> int:
    """Runs a command. Returns the exit code: 0, 1 (an error), 2 (duo prove found a difference) or 130 (Ctrl-C)."""
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
    except MemoryError:
        print("duo: there is not enough memory; free memory or choose smaller models", file=sys.stderr)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (ReaderGone, BrokenPipeError):
        _to_nowhere(sys.stdout)  # nothing is left to flush at exit
        return 0
    except SystemExit as e:
        if not isinstance(e.__context__, BrokenPipeError):  # rich's, with code 1
            raise
        _to_nowhere(sys.stdout)
        return 0
    except Exception as e:
        if _is_interrupt(e):
            return 130
        if isinstance(e, ImportError):  # llama.cpp's libraries; they are loaded when a command needs them
            print(f"duo: {e}", file=sys.stderr)
        elif isinstance(e, OSError) and isinstance(e.filename, str | bytes):
            file = os.fsdecode(e.filename)
            print(f"duo: {file} cannot be used ({e.strerror}); check the path and its permissions", file=sys.stderr)
        elif isinstance(e, OSError):
            _to_nowhere(sys.stdout)
            print(f"duo: cannot write the output ({e.strerror})", file=sys.stderr)
        else:
            raise
    return 1


def _is_interrupt(e: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it. Python makes an ImportError of one that comes while an extension module is loaded,
    and a SystemError of one in native code that does not look for it."""
    while e is not None and not isinstance(e, KeyboardInterrupt):
        e = e.__cause__ or e.__context__
    return e is not None


def _open_streams() -> None:
    """Replaces closed standard streams by the null device. Characters that the terminal lacks become question marks."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until the program ends
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _to_nowhere(stream: TextIO) -> None:
    with suppress(OSError):  # no file behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    leave()
