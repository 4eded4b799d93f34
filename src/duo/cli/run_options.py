"""The options of `duo run` beside those of models and texts. Other commands share some of them."""

from __future__ import annotations

from pathlib import Path

import click

from duo.cli.complete import by_metavar
from duo.cli.listings import listing_options
from duo.cli.on_off import Flag


def before_models() -> list[click.Parameter]:
    """The prompt."""
    path = click.Path(path_type=Path)
    return [
        click.Option(["prompt", "-p", "--prompt"], metavar="TEXT", help="The prompt. Default: standard input."),
        click.Option(["file", "-f", "--file", "-bf", "--binary-file"], type=path, metavar="FILE",
                     help="A file with the prompt. A .jsonl file has one prompt per line: duo writes -np texts at "
                          "once, and prints a line of JSON for each."),
        click.Option(["escape", "-e/", "--escape/--no-escape"], default=True,
                     help=r"Replace \n, \t, \xHH in -p. [default: on]"),
    ]  # fmt: skip


def behind_texts() -> list[click.Parameter]:
    """What is printed, and where."""
    return [
        click.Option(["color", "-co", "--color"], is_flag=False, flag_value="on", default="auto", metavar="on|off|auto",
                     type=click.Choice(["on", "off", "auto"]), help="Show drafted tokens in green. [default: auto]"),
        click.Option(["display_prompt", "--display-prompt/--no-display-prompt"], default=True,
                     help="Print the prompt before the text. [default: on]"),
        Flag(["show_timings", "--show-timings/--no-show-timings"], default=True, envvar="LLAMA_ARG_SHOW_TIMINGS",
             help="Print the figures on standard error. [default: on]"),
        click.Option(["interactive", "-i", "--interactive"], is_flag=True,
                     help="Take turns with the model: a string of -r gives you the turn, and your line gives it "
                          "back."),
        click.Option(["interactive_first", "-if", "--interactive-first"], is_flag=True,
                     help="As -i, and the first turn is yours."),
        click.Option(["in_prefix", "--in-prefix"], metavar="TEXT", help="As -i, and TEXT comes before your turns."),
        click.Option(["in_suffix", "--in-suffix"], metavar="TEXT", help="As -i, and TEXT comes after your turns."),
        click.Option(["in_prefix_bos", "--in-prefix-bos"], is_flag=True,
                     help="As -i, and the BOS token comes before your turns."),
        click.Option(["json", "--json"], is_flag=True,
                     help="Print one JSON object with the text and all figures, and nothing else, on standard output."),
        click.Option(["trace", "--trace"], type=str, metavar="FILE", shell_complete=by_metavar,
                     help="Write every draft step and verification as a Chrome trace (see duo trace)."),
        *listing_options(("; with --json as JSON, sizes in bytes", "; with --json as JSON")),
        click.Option(["verbose", "-v", "--verbose"], is_flag=True, help="Print llama.cpp's log on standard error."),
        click.Option(["log_file", "--log-file"], type=str, metavar="FILE", shell_complete=by_metavar,
                     envvar="LLAMA_ARG_LOG_FILE",
                     help="Write llama.cpp's log to a file."),
    ]  # fmt: skip


def of_run(*names: str) -> list[click.Parameter]:
    """The options of `duo run` with these names, in the order of its help."""
    return [p for p in (*before_models(), *behind_texts()) if p.name in names]
