"""`duo bench --url`: servers with OpenAI's routes."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from duo.benchmark.bench import arms as a
from duo.benchmark.bench import files, questions, slot_figures, slot_report
from duo.benchmark.bench.endpoint.address import parse_addresses
from duo.benchmark.bench.endpoint.client import EndpointClient, read_key
from duo.benchmark.bench.endpoint.writer import EndpointWriter, arms_on
from duo.benchmark.bench.head import head_of
from duo.benchmark.bench.slots import Round, each_round
from duo.cli.bench_head import DEFAULTS, command_line, refuse
from duo.cli.models import NAMES
from duo.cli.options import given_options
from duo.cli.progress import Bar
from duo.errors import BadValueError, DuoError
from duo.options.tables import ENDPOINT_OPTIONS, ENGINE_OPTIONS, GENERATE_OPTIONS
from duo.options.validate import endpoint_options, generate_options
from duo.server.request_options import SAME
from duo.support.wording import one_line

# All of OpenAI's; others are sent only if they were given.
GREEDY = {"temperature": 0.0}
SENT = (*SAME, "max_tokens", "seed")


def measure(params: dict[str, Any]) -> None:
    """Measures, prints, and writes files. Raises DuoError: nothing was measured. Exit code 1 if a server failed later
    on, 130 if Ctrl-C ended the run early; both report what was measured."""
    o = endpoint_options(given_options(params, ENDPOINT_OPTIONS))
    own = "--url, because the server has its own"
    refuse(params, (*NAMES, *ENGINE_OPTIONS), own)
    refuse(params, ("alone", "csv", "chart", "synthetic"), "--url")
    refuse(params, [name for name in GENERATE_OPTIONS if name not in SENT], "--url")
    counts = a.parse_slots(params["slots"] or "1")
    addresses, key = parse_addresses(o["url"]), read_key(o["api_key_file"])
    fields = _fields(params)
    arms = _arms(params)
    files.check_writable(params["json"], "JSON")
    if params["raw"] and params["json"] is None:
        raise BadValueError("--raw adds the records to a JSON file; name the file with --json-file")
    chosen = questions.choose(questions.read(params["questions_file"]), params["questions"], params["category"])
    with ExitStack() as opened:
        clients = [EndpointClient(at, key, o["timeout"], o["url_model"]) for at in addresses]
        for client in clients:
            opened.callback(client.close)
            client.meet()
        limits = {"limit_ttft": o["limit_ttft"], "limit_tpot": o["limit_tpot"]}
        writer = EndpointWriter(clients, fields, **limits, count_chunks=o["count_chunks"])
        settings = {
            "questions": len(chosen),
            "repetitions": params["repetitions"],
            "warm_up": params["warm_up"],
            **fields,
            **{name: ms for name, ms in limits.items() if ms is not None},
            "slots": ",".join(map(str, counts)),
        }
        head = head_of([], command_line(), settings)
        head["servers"] = {
            c.address.name: {"url": c.address.url, "model": c.model, "owned_by": c.owner or None} for c in clients
        }
        notes = writer.notes
        if len(chosen) < max(counts):
            notes[f"only {len(chosen)} texts are ever written at once, because there are no more questions (-f)"] = None
        on = [arm for c in clients for arm in arms_on(c, arms)]
        _run(params, writer, chosen, on, counts, head)


def _fields(params: dict[str, Any]) -> dict[str, Any]:
    """The fields of every request. Raises BadValueError."""
    options = {**DEFAULTS, **GREEDY, **given_options(params, GENERATE_OPTIONS)}
    checked: dict[str, Any] = {**generate_options({name: v for name, v in options.items() if name in SENT})}
    if checked["seed"] == -1:
        checked["seed"] = secrets.randbits(31)  # the same for all arms, because their texts are compared
    if checked["max_tokens"] < 0:
        raise BadValueError("-n -1 lets servers write without an end; give a number of tokens")
    return {name: checked[name] for name in options if name in SENT}


def _arms(params: dict[str, Any]) -> list[a.Arm]:
    """The arms that the user chose for servers with modes; empty: none were chosen."""
    source = click.get_current_context().get_parameter_source
    if all(source(name) is not click.core.ParameterSource.COMMANDLINE for name in ("modes", "sync_lengths", "lengths")):
        return []
    sync = a.parse_lengths(params["sync_lengths"] or "2,4", "--sync-lengths", auto=False)
    return a.arms_of(a.parse_modes(params["modes"]), sync, a.parse_lengths(params["lengths"], "--lengths", auto=True))


def _run(
    params: dict[str, Any],
    writer: EndpointWriter,
    chosen: Sequence[questions.Question],
    arms: Sequence[a.Arm],
    counts: Sequence[int],
    head: dict[str, Any],
) -> None:
    @contextmanager
    def same(_n: int) -> Iterator[EndpointWriter]:
        yield writer

    rounds: list[Round] = []
    failure: DuoError | None = None
    bar, code = Bar(), 0
    with bar.shown():
        try:
            for new_round in each_round(same, chosen, arms, counts, params["repetitions"], params["warm_up"], bar):
                rounds.append(new_round)
        except (DuoError, KeyboardInterrupt) as e:
            if not rounds:
                raise
            failure = e if isinstance(e, DuoError) else None
            code = 130 if failure is None else 1
            why = "" if failure is None else f": {one_line(failure)}"
            writer.notes[f"ended early after {bar.done} of {bar.total} answers, including warm-up{why}"] = None
    try:
        if params["json"] is not None:
            figures = slot_figures.as_json(rounds, head, writer.notes, raw=params["raw"], complete=code == 0)
            files.write_json(params["json"], figures)
    finally:  # last: who reads it may go before its end
        slot_report.show(rounds, head, writer.notes)
    if failure is not None:
        raise failure
    if code:
        raise click.exceptions.Exit(code)
