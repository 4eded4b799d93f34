"""`duo prove`: counts texts that differ, on any model and against any server."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from duo.cli.bench_head import ReportCommand, command_line, refuse
from duo.cli.models import model_sources
from duo.cli.options import given_options, model_options, table_options
from duo.cli.progress import Bar
from duo.cli.run_options import of_run
from duo.errors import BadValueError, DuoError
from duo.options.endpoint import EndpointOptions
from duo.options.tables import ENDPOINT_OPTIONS, ENGINE_OPTIONS, GENERATE_OPTIONS
from duo.support.wording import one_line

if TYPE_CHECKING:
    from duo.benchmark.prove.plan import ProofPlan

HELP = """Count texts that differ although they must be the same.

The target alone writes each text first, one at a time. Then the texts are written again: taking turns and at the same
time, with each draft at hand (-md, n-grams, MTP layers or a head of the target's), as a stream, after its state was
saved and restored in the middle, sampled with a seed, as a call of a tool and as JSON with a schema, and with
neighbours that come, end and are cancelled. The table counts the texts that differ. For the worst of them it shows the
first token that differs, and how near it was: the gap between the log-probabilities of both tokens.

--against tests a server with OpenAI's routes in the same ways. Its own first greedy answers are the reference. With -m
they are compared with the texts of a model that is loaded here, too.

The exit code is 2 if a text differs, if the arguments of a call do not parse, or if a text fails. It is 1 if a server
refused all texts of a case.

\b
Examples:
  duo prove
  duo prove -m 70B.gguf -md 8B.gguf --prompts prompts.txt -n 96
  duo prove --against http://127.0.0.1:8080 --quick
  duo prove -m 70B.gguf --against http://127.0.0.1:8080/v1/completions --json
"""

DIFFERENT = 2  # exit code
DEFAULTS = {"max_tokens": 48, "seed": 1}
QUICK_TOKENS, QUICK_PROMPTS, QUICK_SLOTS = 24, 3, "1,4"
OF_SERVER = ("url_model", "api_key_file", "timeout")


def plan_of(params: dict[str, Any]) -> ProofPlan:
    """The plan that the options ask for. Raises BadValueError."""
    from duo.benchmark.bench.arms import parse_slots
    from duo.benchmark.prove.plan import ProofPlan, prompts_of
    from duo.options.validate import generate_options

    quick = params["quick"]
    defaults = DEFAULTS | ({"max_tokens": QUICK_TOKENS} if quick else {})
    checked = generate_options({**defaults, **given_options(params, OF_TEXT)})
    if checked["max_tokens"] < 0:
        raise BadValueError("-n -1 lets models write without an end; give a number of tokens")
    seed = secrets.randbits(31) if checked["seed"] == -1 else checked["seed"]
    prompts = prompts_of(params["prompts"], params["n_prompts"])
    if quick and params["n_prompts"] is None:
        prompts = prompts[:QUICK_PROMPTS]
    counts = parse_slots(params["slots"] or (QUICK_SLOTS if quick else "1,2,4,8"))
    return ProofPlan(prompts, checked["max_tokens"], seed, counts)


OF_TEXT = {name: GENERATE_OPTIONS[name] for name in DEFAULTS}


def prove(params: dict[str, Any]) -> None:
    """Raises DuoError: nothing was counted. Exit code 2 if something differs, 1 if the run failed later on, 130 if
    Ctrl-C ended it early; all report what was counted."""
    from duo.benchmark.prove import report
    from duo.benchmark.prove.run import Proof
    from duo.benchmark.prove.tally import as_json

    if params["against"] is None:
        refuse(params, OF_SERVER, "models that are loaded here; name a server with --against")
        from duo.cli.prove_pair import measure
    else:
        from duo.cli.prove_server import measure
    plan = plan_of(params)
    bar = Bar()
    proof = Proof(bar)
    head: dict[str, Any] = {}
    failure: DuoError | None = None
    code = 0
    with bar.shown():
        try:
            measure(params, plan, proof, head, command_line())
        except (DuoError, KeyboardInterrupt) as e:
            if not any(t.n_texts for t in proof.tallies):
                raise
            failure = e if isinstance(e, DuoError) else None
            code = 130 if failure is None else 1
            why = "" if failure is None else f": {one_line(failure)}"
            proof.notes[f"ended early after {bar.done} of {bar.total} texts{why}"] = None
    head.setdefault("settings", {}).update(
        prompts=len(plan.prompts), max_tokens=plan.n_tokens, seed=plan.seed, slots=",".join(map(str, plan.counts))
    )
    if params["json"]:
        print(json.dumps(as_json(proof.tallies, head, proof.notes, complete=code == 0), indent=1))
    else:
        report.show(proof.tallies, head, proof.notes)
    if failure is not None:
        raise failure
    if code or not all(t.is_clean for t in proof.tallies):
        raise click.exceptions.Exit(code or DIFFERENT)
    if unproved := dict.fromkeys(f"{t.case} ({t.at_once} at once)" for t in proof.tallies if t.is_unproved):
        raise DuoError(
            f"not proved: {', '.join(unproved)}, because the server refused all of these texts; give it more room, or "
            "fewer texts at once (--slots)"
        )


def _options() -> Iterator[click.Option]:
    for o in model_options(defaults=DEFAULTS):
        if (o.name in ENGINE_OPTIONS or o.name in DEFAULTS) and o.name != "n_parallel":
            yield o


def _of_server() -> Iterator[click.Option]:
    for o in table_options(EndpointOptions, ENDPOINT_OPTIONS):
        if o.name in OF_SERVER:
            o.help = (o.help or "").replace("each --url", "--against").replace("a server of --url", "the server")
            yield o


def _command() -> click.Command:
    path = click.Path(path_type=Path)
    own = [
        click.Option(["against", "--against"], metavar="[NAME=]URL",
                     help="Ask a server with OpenAI's routes. The URL ends with the host, with /v1, or with the route "
                          "of texts: /v1/completions (the default) or /v1/chat/completions."),
        click.Option(["prompts", "--prompts"], type=path, metavar="FILE",
                     help="A file with one prompt on each line, or questions in Spec-Bench's format (.jsonl). Default: "
                          "eight openings that come with duo."),
        click.Option(["n_prompts", "--n-prompts"], type=click.IntRange(min=1), metavar="N",
                     help="Number of prompts, spread evenly over the file. If the file has fewer, two prompts at a "
                          "time are joined to make more. Default: all."),
        click.Option(["slots", "--slots"], metavar="N,N",
                     help="Numbers of texts at once. [default: 1,2,4,8]"),
        click.Option(["quick", "--quick"], is_flag=True,
                     help=f"Few texts: {QUICK_PROMPTS} prompts, -n {QUICK_TOKENS}, --slots {QUICK_SLOTS}."),
        click.Option(["json", "--json"], is_flag=True, help="Print everything as JSON, and no table."),
    ]  # fmt: skip
    return ReportCommand(
        "prove",
        params=[*model_sources(heads=False), *own, *_of_server(), *_options(), *of_run("verbose", "log_file")],
        callback=lambda **params: prove(params),
        help=HELP,
    )


command = _command()
