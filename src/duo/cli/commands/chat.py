"""`duo chat`: a conversation on a terminal or with lines from a pipe."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from duo.chat.thinking import dates, with_thinking
from duo.cli import show
from duo.cli.chat_commands import HELP_TEXT, Commands, Leave
from duo.cli.chat_input import TurnReader
from duo.cli.help_groups import COMMON, MODELS
from duo.cli.listings import listed, listing_options
from duo.cli.models import model_sources
from duo.cli.on_off import Flag
from duo.cli.opening import introduce, open_duo, warn_of_draft, warn_of_start
from duo.cli.options import ModelCommand, given_options, model_options, unescape
from duo.cli.run_options import of_run
from duo.cli.template_options import either, template_choice, template_options, thoughts_of, warn_of_thoughts
from duo.cli.transcript import Transcript
from duo.errors import ContextFullError, DuoError
from duo.options.tables import GENERATE_OPTIONS
from duo.support.wording import one_line

if TYPE_CHECKING:
    from duo.conversation import Conversation

HELP = f"""Talk with a model, turn by turn.

The model's own chat template is used. The conversation stays in the caches of both models, so each turn costs only its
new tokens. A line is a turn. A line that ends in \\ continues on the next line; \"\"\" starts a text of several lines
that ends at the next \"\"\". On a terminal a pasted block is one turn, Alt-Enter begins a line, Ctrl-R searches the
history, and Tab completes commands and files. Ctrl-C stops an answer, Ctrl-D or /exit ends the conversation. Without
a terminal each line of standard input is a turn.

\b
Commands:
{HELP_TEXT}

\b
Examples:
  duo chat
  duo chat -m 70B.gguf -md 8B.gguf -ngl 11 -ngld 99 -sys "Answer in one sentence."
  printf 'Hello!\\nAnd in French?\\n' | duo chat -m 70B.gguf -md 8B.gguf --temp 0
"""


def _typed(params: dict[str, Any], text: str, file: str, flags: str) -> str | None:
    """The text, or what stands in the file; escapes are replaced if it is typed. Raises BadValueError."""
    value = either(params, text, file, flags)
    return unescape(value) if value is not None and params[file] is None and params["escape"] else value


def answer(
    talk: Conversation, question: str, options: dict[str, Any], *, color: bool, transcript: Transcript | None = None
) -> None:
    """One turn, printed as it arrives. Ctrl-C stops the answer; the part so far is kept. A question without any answer
    is taken back."""
    stream = talk.ask(question, **options)
    if transcript is not None:
        transcript.add_question(question)
    reading = talk.reading()
    failure: BaseException | None
    try:
        failure = show.TokenPrinter(sys.stdout, color, reading).write(stream)
    except BaseException as e:  # no text, or a second Ctrl-C while the first one stops it
        stream.close()
        if not stream.result.text:
            talk.take_back()
            raise
        failure = e
    talk.answered(stream.result, None if reading is None else reading.answer)
    if transcript is not None:
        transcript.add_answer(stream.result.text, None if reading is None else reading.answer)
    if failure is not None:
        raise failure
    warn_of_draft(talk.duo, stream)
    if talk.is_full:
        show.warn(
            f"the context of {talk.duo.n_ctx()} tokens is full; /reset clears the conversation, -c makes it larger"
        )


def _talk(
    talk: Conversation,
    options: dict[str, Any],
    color: bool,
    first: str | None,
    *,
    single: bool,
    plain: bool,
    timed: bool,
    transcript: Transcript | None,
) -> None:
    """timed: with the figures of each answer."""
    commands = Commands(talk, options)
    reader = TurnReader(commands.names, first, plain=plain)
    while True:
        try:
            turn = reader.read()
            if turn is None:
                return
            if reader.one_line and turn.startswith("/"):
                commands(turn)
            else:
                answer(talk, turn, options, color=color, transcript=transcript)
                if timed and talk.last is not None:
                    show.show_figures(talk.last, sys.stderr)
                if not reader.interactive and talk.last is not None and talk.last.finish_reason == "cancelled":
                    raise KeyboardInterrupt
                if single:
                    return
        except Leave:
            return
        except KeyboardInterrupt:
            if not reader.interactive:
                raise
        except DuoError as e:
            why = one_line(e)
            if isinstance(e, ContextFullError):
                why += ", or clear the conversation with /reset"
            if not reader.interactive:
                e.args = (why,)
                raise
            show.warn(why)


def chat(params: dict[str, Any]) -> None:
    if listed(params):
        return
    from duo.chat.chat_template import template_of
    from duo.chat.reading import reasoning_of
    from duo.conversation import Conversation
    from duo.generation.job import check_early

    system = _typed(params, "system_prompt", "system_prompt_file", "-sys and -sysf")
    first = _typed(params, "prompt", "file", "-p and -f")
    if first is not None and params["file"] is not None:
        first = first.removesuffix("\n")
    chosen, variables = template_choice(params)
    options = given_options(params, GENERATE_OPTIONS)
    reasoning = reasoning_of(params["reasoning_format"])
    complete_options = check_early("?", options)  # reports a bad value before minutes of loading
    options.pop("images", None)  # they belong to the first question
    show.warn_of_schema(complete_options)
    interactive = sys.stdin is not None and sys.stdin.isatty()
    with ExitStack() as stack:
        transcript = None if params["output"] is None else stack.enter_context(closing(Transcript(params["output"])))
        d = stack.enter_context(open_duo(params, finds_guesses=True))
        template = template_of(d.local_model, chosen)
        thoughts = thoughts_of(params, complete_options)
        warn_of_thoughts(thoughts, lambda: template)
        variables = with_thinking(variables, template, {**thoughts, **dates()})
        talk = Conversation(d, template, system, variables=variables, reasoning=reasoning)
        for picture in complete_options["images"] or ():
            talk.show(picture)
        if interactive:
            introduce(d, complete_options)
        if interactive and not params["single_turn"]:
            show.warn("/help lists the commands; Ctrl-C stops an answer, Ctrl-D quits")
        warn_of_start(d)
        if first is not None and params["display_prompt"]:
            print(f"> {first}", flush=True)
        _talk(
            talk, options, show.wants_color(params["color"], sys.stdout), first, single=params["single_turn"],
            plain=params["simple_io"], timed=params["show_timings"], transcript=transcript,
        )  # fmt: skip


def _command() -> click.Command:
    path = click.Path(path_type=Path)
    own = [
        click.Option(["system_prompt", "-sys", "--system-prompt"], metavar="TEXT", help="The system prompt."),
        click.Option(["system_prompt_file", "-sysf", "--system-prompt-file"], type=path, metavar="FILE",
                     help="A file with the system prompt."),
        click.Option(["prompt", "-p", "--prompt"], metavar="TEXT", help="The first turn."),
        click.Option(["file", "-f", "--file", "-bf", "--binary-file"], type=path, metavar="FILE",
                     help="A file with the first turn."),
        click.Option(["single_turn", "-st", "--single-turn"], is_flag=True, help="End after one answer."),
        click.Option(["output", "-o", "--output", "--output-file"], type=path, metavar="FILE",
                     help="Also write the conversation to this file."),
        click.Option(["simple_io", "--simple-io"], is_flag=True,
                     help="Read lines without editing, for terminals that cannot."),
        click.Option(["display_prompt", "--display-prompt/--no-display-prompt"], default=False,
                     help="Print the first turn of -p or -f before its answer. [default: off]"),
        Flag(["show_timings", "--show-timings/--no-show-timings"], default=False, envvar="LLAMA_ARG_SHOW_TIMINGS",
             help="Print the figures of each answer on standard error. [default: off]"),
        *listing_options(),
        *template_options(),
    ]  # fmt: skip
    return ModelCommand(
        "chat",
        params=[*model_sources(), *own, *model_options(), *of_run("escape", "color", "verbose", "log_file")],
        callback=lambda **params: chat(params),
        help=HELP,
        common=(*MODELS, "system_prompt", "chat_template", "reasoning", *COMMON),
    )


command = _command()
