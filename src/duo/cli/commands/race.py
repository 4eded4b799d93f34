"""`duo race`: the target alone and the pair write the same text, side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from duo.cli import show
from duo.cli.bench_head import OF_DRAFT
from duo.cli.commands.run import read_prompt
from duo.cli.first_line import kernels_of
from duo.cli.help_groups import COMMON, MODELS
from duo.cli.models import Models, model_sources, names_draft, names_target
from duo.cli.opening import introduce, open_duo, warn_of_draft, warn_of_start
from duo.cli.options import ModelCommand, given_options, model_options
from duo.cli.own_guesses import with_targets_own
from duo.cli.progress import progress
from duo.cli.run_options import of_run
from duo.errors import BadValueError
from duo.options.tables import GENERATE_OPTIONS
from duo.support.wording import plural

if TYPE_CHECKING:
    from duo.benchmark.race import Lane, Outcome

HELP = """Let the target alone and the pair write the same text, and show both side by side.

First the target writes alone, with no draft loaded. Then both models write. The two runs are not at the same time,
because each would take cores and memory bandwidth from the other. On a terminal the second text appears beside the
first one, whose bright part shows how far it was at the same time on the stopwatch. Tokens that the draft guessed are
green. The last line has the ratio of tokens per second and says whether both texts are the same. If the output is not a
terminal, there is a line for each text and no picture. With --json these lines go to standard error.

Without -m the demo pair runs. Its target is widened to 600 MB: it writes the same text as the small one, and takes the
time of a large one. duo makes this file in its cache when it is missing. The stopwatch starts with the request for the
text, so the time for the prompt counts, but not the time for loading.

\b
Examples:
  duo race
  duo race --temp 0 -p "Once upon a time" -n 300
  duo race -m 70B.gguf -md 8B.gguf -p "Why is the sky blue?" -n 256
"""
PROMPT = "Once upon a time there was a little tin soldier who"
DEFAULTS: dict[str, Any] = {"max_tokens": 200, "seed": 1}
# The second text would begin with what the first one left.
NOT_HERE = ("prompt_cache", "prompt_cache_all", "prompt_cache_ro", "cache_ram", "n_parallel")


def run(params: dict[str, Any]) -> None:
    """Raises DuoError."""
    from duo.generation.job import check_early

    prompt = PROMPT
    if params["prompt"] is not None or params["file"] is not None:
        prompt = read_prompt(params["prompt"], params["file"], params["escape"])
    options = {**DEFAULTS, **given_options(params, GENERATE_OPTIONS)}
    complete_options = check_early(prompt, options)
    if complete_options["mode"] == "plain":
        raise BadValueError("--mode plain would race against itself; leave it out, or take sync")
    if complete_options["seed"] == -1:
        import secrets

        options["seed"] = secrets.randbits(63)  # the same for both
    has_target = names_target(params) or params["verify_host"] is not None
    if not has_target and names_draft(params):
        raise BadValueError("a draft was given without a target; give the target too (-m)")
    params, models = with_targets_own(params)
    options = {**options, **given_options({"spec_type": params["spec_type"]}, GENERATE_OPTIONS)}
    if has_target:
        _check_guesses(params)
    else:
        models = _demo_models(params)
    from duo.benchmark.race import Lane, Outcome
    from duo.cli.race_screen import can_show

    alone = Runner(Lane("plain", "the target alone"), *without_draft(params, models, options), prompt)
    pair = Runner(Lane(str(complete_options["mode"]), "target and draft"), params, models, options, prompt)
    on_screen = can_show(sys.stdout) and not params["verbose"] and not params["json"]
    _write_both(alone, pair, color=show.wants_color(params["color"], sys.stdout) if on_screen else None)
    outcome = Outcome(alone.lane, pair.lane)
    for line in lines_of(outcome, each_text=not on_screen):
        print(line, file=sys.stderr if params["json"] else sys.stdout)
    if outcome.disturbed:
        used = (f"{lane.other_cores or 0.0:.1f} cores during {lane.name}" for lane in (alone.lane, pair.lane))
        show.warn(f"other programs used {' and '.join(used)}, so the ratio is not that of a quiet machine")
    if params["json"]:
        print(json.dumps(figures(outcome, models, prompt, options["seed"])))


def _check_guesses(params: dict[str, Any]) -> None:
    """Raises BadValueError: nothing guesses."""
    sources = params["spec_type"] or ""
    guesses = names_draft(params) or params["draft_host"] is not None or params["verify_host"] is not None
    if not guesses and "ngram-" not in sources and "draft-mtp" not in sources:
        raise BadValueError("a race needs a draft, and none was given; give it with -md")


def _demo_models(params: dict[str, Any]) -> Models:
    """Raises DuoError."""
    from duo.gguf_tools.demo_target import demo_target
    from duo.models.demo import demo_pair

    with progress("bytes", lines=True) as bar:
        target = demo_target(lambda _, done, total: bar("widening the demo target", done, total))
    return Models(str(target), None if params["draft_host"] is not None else str(demo_pair()[1]))


def without_draft(
    params: dict[str, Any], models: Models, options: dict[str, Any]
) -> tuple[dict[str, Any], Models, dict[str, Any]]:
    """Parameters, models and the text's options of a user who has no draft."""
    plain = {**params, "mode": "plain", "spec_type": None}
    text = {k: v for k, v in options.items() if k != "spec_type"} | {"mode": "plain"}
    if params["verify_host"] is not None:  # the target is there, and its tokenizer is the draft's
        return plain, models, text
    return {**plain, **dict.fromkeys(OF_DRAFT)}, models._replace(draft=None), text


@dataclass(frozen=True)
class Runner:
    """One side of the race."""

    lane: Lane
    params: dict[str, Any]
    models: Models
    options: dict[str, Any]
    prompt: str

    def run(self, look: Callable[[], None] | None) -> None:
        """Loads the models and writes the text. look: draws the screen; None: there is none. Raises DuoError."""
        from duo.generation.job import check_early

        def loading(_: str, share: float) -> None:
            self.lane.loaded = share
            if look is not None:
                look()

        self.lane.state = "loads"
        with open_duo(self.params, models=self.models, progress=None if look is None else loading) as d:
            introduce(d, check_early(self.prompt, self.options))
            self.lane.kernels = "" if d.engine.target is None else kernels_of(d.engine.target)
            early = warn_of_start(d)
            stream = self.lane.write(lambda: d.stream(self.prompt, **self.options), look or (lambda: None))
            if stream.warning != early:
                warn_of_draft(d, stream)


def _write_both(alone: Runner, pair: Runner, *, color: bool | None) -> None:
    """One after the other. color: of the screen; None: there is no screen. Raises DuoError."""
    if color is None:
        alone.run(None)
        pair.run(None)
        return
    from rich.console import Console

    from duo.cli.race_screen import Screen

    console = Console(no_color=not color, highlight=False)
    with Screen(console, alone.prompt, (alone.lane, pair.lane)) as screen:
        alone.run(screen.look)
        pair.run(screen.look)


def lines_of(outcome: Outcome, *, each_text: bool) -> Iterator[str]:
    """The result in words. each_text: with a line for each text."""
    alone, pair = outcome.alone, outcome.pair
    if each_text:
        for lane in (alone, pair):
            guessed = f", {lane.n_guessed} of them guessed by the draft" if lane is pair else ""
            yield (
                f"{lane.name}: {lane.n_tokens} tokens in {lane.seconds:.2f} s, {lane.per_second:.1f} tokens/s{guessed}"
            )
    same = "yes" if outcome.same else f"no, from token {outcome.n_same + 1} on"
    yield (
        f"{pair.name} wrote {outcome.ratio:.2f} times as many tokens per second as {alone.name} "
        f"({pair.per_second:.1f} against {alone.per_second:.1f}); same text: {same}"
    )
    if not outcome.same and not outcome.same_kernels:
        yield (
            f"The target ran on {alone.kernels} alone and on {pair.kernels} with the draft, which was measured to be "
            "fastest; these round differently. With --cpu-kernels duo both run on the same"
        )


def figures(outcome: Outcome, models: Models, prompt: str, seed: int) -> dict[str, Any]:
    """The result as JSON has it."""
    from duo.benchmark.bench.head import machine
    from duo.placement.cpus import core_cpus

    names = {k: None if v is None else Path(v).name for k, v in models._asdict().items()}
    cores = plural(len(core_cpus()), "core")
    return {"machine": machine(), "cores": cores, **names, "prompt": prompt, "seed": seed, **outcome.as_json()}


def _command() -> click.Command:
    prompt = of_run("prompt", "file", "escape")
    return ModelCommand(
        "race",
        params=[
            *model_sources(),
            *prompt,
            *model_options(NOT_HERE, DEFAULTS),
            *of_run("color", "json", "verbose", "log_file"),
        ],
        callback=lambda **params: run(params),
        help=HELP,
        common=(*MODELS, "prompt", "file", *COMMON, "json"),
    )


command = _command()
