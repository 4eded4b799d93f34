"""The options of `duo chat` and `duo serve` that say which template makes prompts, and how the model thinks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from duo.chat.thinking import EFFORT, THINKS, can_choose, choices
from duo.cli import show
from duo.cli.complete import by_metavar
from duo.cli.on_off import Flag, OnOffAuto
from duo.errors import BadValueError
from duo.support.text_file import text_of

if TYPE_CHECKING:
    from duo.chat.chat_template import ChatTemplate
    from duo.options.generate import GenerateOptions


def either(params: dict[str, Any], text: str, file: str, flags: str) -> str | None:
    """The text, or what stands in the file. flags: of both options. Raises BadValueError."""
    if params[text] is not None and params[file] is not None:
        raise BadValueError(f"both {flags} were given; choose one")
    value: str | None = params[text]
    return value if params[file] is None else text_of(params[file], f"file of {flags.split(' and ')[1]}")


def _variables(text: str | None) -> dict[str, Any]:
    """--chat-template-kwargs. Raises BadValueError."""
    try:
        variables = {} if text is None else json.loads(text)
    except (ValueError, RecursionError):
        variables = None
    if not isinstance(variables, dict):
        raise BadValueError(
            f"--chat-template-kwargs {text} is not a JSON object; write '{{\"enable_thinking\": false}}'"
        )
    return variables


def template_choice(params: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The chat template that the options choose (None: the model's own), and its variables. Raises BadValueError."""
    from duo.chat.chat_template import ChatTemplate

    chosen = either(params, "chat_template", "chat_template_file", "--chat-template and --chat-template-file")
    if chosen is not None and "{" in chosen:
        ChatTemplate(chosen)
    return chosen, _variables(params["chat_template_kwargs"])


def thoughts_of(params: dict[str, Any], options: GenerateOptions) -> dict[str, Any]:
    """What the options say of the model's thoughts (duo.chat.thinking). options: of a text, complete."""
    on = False if params["reasoning"] is None and options["reasoning_budget"] == 0 else params["reasoning"]
    return choices(on, params["reasoning_effort"], params["reasoning_preserve"])


def warn_of_thoughts(thoughts: Mapping[str, Any], template: Callable[[], ChatTemplate]) -> None:
    """Says which of the choices the template does not know. It is read only if there is one that it may not know."""
    if thoughts.get(THINKS) is False and not can_choose(template()):
        show.warn(f"the chat template has no {THINKS}, so the model may think in spite of --reasoning off")
    if EFFORT in thoughts and EFFORT not in template().variables:
        show.warn(f"the chat template has no {EFFORT}, so --reasoning-effort changes nothing")


def template_options() -> list[click.Parameter]:
    """The options for chat templates."""
    path = click.Path(path_type=Path)
    return [
        click.Option(["chat_template", "--chat-template"], metavar="NAME|JINJA", envvar="LLAMA_ARG_CHAT_TEMPLATE",
                     help="The name of a template that llama.cpp knows (chatml, llama3, ...), or a jinja2 template. "
                          "Default: the model's own."),
        click.Option(["chat_template_file", "--chat-template-file"], type=path, metavar="FILE",
                     envvar="LLAMA_ARG_CHAT_TEMPLATE_FILE", help="A file with a jinja2 template."),
        click.Option(["chat_template_kwargs", "--chat-template-kwargs"], metavar="JSON",
                     envvar="LLAMA_ARG_CHAT_TEMPLATE_KWARGS",
                     help="Variables of the jinja2 template, such as '{\"enable_thinking\": false}'."),
        click.Option(["reasoning_format", "--reasoning-format"], metavar="none|auto|deepseek", default="auto",
                     envvar="LLAMA_ARG_THINK", shell_complete=by_metavar,
                     help="auto, deepseek: keep thoughts out of the answer (a terminal shows them dimmed). none: "
                          "leave the text as it is. [default: auto]"),
        click.Option(["reasoning", "-rea", "--reasoning"], type=OnOffAuto(), metavar="on|off|auto",
                     envvar="LLAMA_ARG_REASONING",
                     help="Whether the model thinks before it answers, if its template has enable_thinking. auto: "
                          "yes. [default: auto]"),
        click.Option(["reasoning_effort", "--reasoning-effort"], metavar="LEVEL",
                     envvar="LLAMA_ARG_REASONING_EFFORT",
                     help="How much the model thinks, if its template has reasoning_effort: low, medium, high, ..."),
        Flag(["reasoning_preserve", "--reasoning-preserve/--no-reasoning-preserve"], default=None,
             envvar="LLAMA_ARG_REASONING_PRESERVE",
             help="Whether prompts keep the thoughts of earlier turns, if the template has preserve_reasoning."),
    ]  # fmt: skip
