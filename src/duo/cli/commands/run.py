"""`duo -m ... -md ... -p ...`: generates one text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from duo.cli import show
from duo.cli.help_groups import COMMON, MODELS
from duo.cli.listings import listed
from duo.cli.models import model_sources
from duo.cli.opening import introduce, open_duo, warn_of_draft, warn_of_start
from duo.cli.options import ModelCommand, given_options, model_options, unescape
from duo.cli.run_options import before_models, behind_texts
from duo.errors import BadValueError
from duo.options.tables import GENERATE_OPTIONS

HELP = """Write text with a target model and a draft model that run at the same time.

The text is the target's; the draft only makes it faster. Without -m the demo pair is used. Without -md, duo uses the
target's own MTP layers, a draft beside its file, the draft of a known pair, or (on the CPU) n-grams.

The prompt goes to the model as it is, without a chat template. For one answer of a chat model, use `duo chat -st -p`.

\b
Examples:
  duo -p "Once upon a time" -n 200
  duo -m 70B.gguf -md 8B.gguf -ngl 11 -ngld 99 -p "The sky is blue because" -n 512
  duo --pair llama-3.3-70b -p "The sky is blue because" -n 512
  cat letter.txt | duo -m 70B.gguf -md 8B.gguf --temp 0
  duo -m 70B.gguf -md 8B.gguf -dev none -devd CUDA0 -f prompt.txt --trace run.json
  duo -m 70B.gguf -md 8B.gguf -f prompts.jsonl -np 4 > texts.jsonl

duo --help lists the other commands.
"""


def read_prompt(prompt: str | None, file: Path | None, escape: bool) -> str:
    """The prompt of -p, -f or standard input. The last line end of a file is dropped, as in llama.cpp. Raises
    BadValueError."""
    if prompt is not None:
        if file is not None:
            raise BadValueError("both -p and -f were given; choose one")
        return unescape(prompt) if escape else prompt
    if file is not None:
        name = str(file)
        try:
            data = file.read_bytes()
        except OSError as e:
            raise BadValueError(f"the prompt file {name} cannot be read ({e.strerror}); check the path") from None
    else:
        if sys.stdin is None or sys.stdin.isatty():
            raise BadValueError("there is no prompt; give it with -p, -f or on standard input")
        name, data = "standard input", sys.stdin.buffer.read()
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as e:
        raise BadValueError(f"the prompt in {name} is not UTF-8 (byte {e.start}); convert it") from None


def run(params: dict[str, Any]) -> None:
    if listed(params):
        return
    from duo.generation.job import check_early

    file = params["file"]
    if file is not None and file.suffix == ".jsonl" and params["prompt"] is None:
        run_many(params)
        return
    if is_dialogue(params):
        run_dialogue(params)
        return
    prompt = read_prompt(params["prompt"], file, params["escape"])
    text_options = given_options(params, GENERATE_OPTIONS)
    complete_options = check_early(prompt, text_options)  # reports a bad value before minutes of loading
    show.warn_of_schema(complete_options)
    with open_duo(params, trace=params["trace"], finds_guesses=True) as d:
        stream = d.stream(prompt, **text_options)  # if the prompt is too long, this error is the only output
        introduce(d, complete_options)
        early = warn_of_start(d)
        out = show.live_output(json=params["json"])
        printer = show.TokenPrinter(out, show.wants_color(params["color"], out))
        if params["display_prompt"]:
            out.write(prompt)
        failure = printer.write(stream)
        result = stream.result
        if failure is None and result.warning != early:
            warn_of_draft(d, stream)
        for note in stream.cache_notes:
            show.warn(f"prompt cache: {note}")
        if params["show_timings"]:
            show.show_figures(result, sys.stderr)
        if params["json"]:
            print(show.as_json(result))
        if failure is not None:
            raise failure  # printed last
        if result.finish_reason == "cancelled":
            raise click.exceptions.Exit(130)


def run_many(params: dict[str, Any]) -> None:
    """A text for each line of a .jsonl file, -np at once; a line of JSON for each, also if it fails."""
    if params["json"]:
        raise BadValueError(
            "--json is for one text, and a .jsonl file gives a line of JSON for each text; leave --json out"
        )
    from duo.cli.prompt_lines import read_prompts, write_all
    from duo.generation.job import check_early

    prompts = read_prompts(params["file"])
    text_options = given_options(params, GENERATE_OPTIONS)
    complete_options = check_early(prompts[0], text_options)
    show.warn_of_schema(complete_options)
    with open_duo(params, trace=params["trace"], finds_guesses=True) as d:
        introduce(d, complete_options)
        warn_of_start(d)
        write_all(d, prompts, text_options, sys.stdout)


def is_dialogue(params: dict[str, Any]) -> bool:
    return any(params[name] for name in ("interactive", "interactive_first", "in_prefix", "in_suffix", "in_prefix_bos"))


def run_dialogue(params: dict[str, Any]) -> None:
    """The model and the user write in turn."""
    if params["json"]:
        raise BadValueError("--json is for one text, and not for turns with the model (-i); leave one of them out")
    from duo.cli.dialogue import Dialogue
    from duo.generation.job import check_early

    has_prompt = params["prompt"] is not None or params["file"] is not None
    prompt = read_prompt(params["prompt"], params["file"], params["escape"]) if has_prompt else ""
    around = {name: params[f"in_{name}"] or "" for name in ("prefix", "suffix")}
    if params["escape"]:
        around = {name: unescape(text) for name, text in around.items()}
    text_options = given_options(params, GENERATE_OPTIONS)
    complete_options = check_early(prompt or "?", text_options)
    show.warn_of_schema(complete_options)
    with open_duo(params, trace=params["trace"], finds_guesses=True) as d:
        introduce(d, complete_options)
        warn_of_start(d)
        if params["display_prompt"]:
            sys.stdout.write(prompt)
        color = show.wants_color(params["color"], sys.stdout)
        talk = Dialogue(
            d, text_options, **around, with_bos=params["in_prefix_bos"], escape=params["escape"], color=color
        )
        talk.write(prompt, user_first=params["interactive_first"])


command = ModelCommand(
    "run",
    params=[*model_sources(), *before_models(), *model_options(), *behind_texts()],
    callback=lambda **params: run(params),
    help=HELP,
    common=(*MODELS, "prompt", "file", *COMMON, "json"),
)
