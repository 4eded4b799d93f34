"""Thousands of random faults, and whether a text changes, a token is lost, or a process ends as it must not.

    python -m benchmarks.torture --minutes 20 [--faults 10000] [--headers 100000] [--seed 1] [--out FILE]
    python -m benchmarks.torture --seed 1 --out FILE --go-on      # with what FILE's run had no time for
    python -m benchmarks.torture --seed 1 --only 137     # one fault again
    python -m benchmarks.torture --seed 1 --header 137   # one header again
    python -m benchmarks.torture --seed 1 --batch 137    # with the faults that were before it in its process

A fault has a number, and the seed decides what it is. Faults of one kind happen in a process of their own, about
twenty in one. The exit code is 1 if anything was wrong, and 130 after Ctrl-C, which ends all that was started.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.torture import catalogue
from benchmarks.torture.headers.kind import Headers
from benchmarks.torture.kind import Kind
from benchmarks.torture.kinds.all import KINDS
from benchmarks.torture.parent import Parent
from benchmarks.torture.plan import Batch, after, batch_of, batches, each
from benchmarks.torture.report import as_json, earlier, sum_of, table

N_FAULTS, N_HEADERS = 10_000, 100_000


def arguments(args: Sequence[str] | None = None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=60.0, help="for all of it; what is not through then is left out")
    p.add_argument("--faults", type=int, default=N_FAULTS)
    p.add_argument("--headers", type=int, default=N_HEADERS)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--workers", type=int, default=2 * (os.cpu_count() or 1), help="processes at a time")
    p.add_argument("--kinds", default="", help="only those whose name has one of these words, separated by commas")
    p.add_argument("--only", type=int, help="the number of one fault")
    p.add_argument("--batch", type=int, help="the number of a fault, after those before it in its process")
    p.add_argument("--header", type=int, help="the number of one mutated header")
    p.add_argument("--each", type=int, help="so many faults of each kind, in place of the plan of all")
    p.add_argument("--go-on", action="store_true", help="go on with the run whose results --out has, and add to them")
    p.add_argument("--out", type=Path, help="a file for the results, as JSON")
    return p.parse_args(args)


def usable(words: str) -> tuple[list[type[Kind]], list[str]]:
    """The kinds that are wanted and can be, and why others cannot."""
    wanted = [k for k in KINDS if not words or any(w.strip() in k.name for w in words.split(","))]
    missing = [k for k in wanted if k.needs and importlib.util.find_spec(k.needs) is None]
    return [k for k in wanted if k not in missing], [f"{k.name}: not run, it needs {k.needs}" for k in missing]


def prepare(folder: Path) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """Models, right texts, and a cache folder in which duo has found out what it wants to know about this machine."""
    cache = folder / "cache"
    cache.mkdir()
    models = folder / "models"
    models.mkdir()
    rights = folder / "rights.json"
    pid = os.fork()  # this process must stay without threads
    if pid == 0:
        code = 1
        try:
            os.environ["XDG_CACHE_HOME"] = str(cache)
            catalogue.make_rights(catalogue.make_models(models), rights)
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    if os.waitpid(pid, 0)[1] != 0:
        raise SystemExit("the right texts could not be made")
    return catalogue.make_models(models), catalogue.read_rights(rights), cache


def interleaved(faults: Iterator[Batch], n_faults: int, headers: Iterator[Batch], n_headers: int) -> Iterator[Batch]:
    """Both, so that they end together."""
    fault, header = next(faults, None), next(headers, None)
    while fault is not None or header is not None:
        if header is None or (fault is not None and fault.first / n_faults <= header.first / n_headers):
            yield fault  # type: ignore[misc]
            fault = next(faults, None)
        else:
            yield header
            header = next(headers, None)


class Progress:
    def __init__(self, parent: Parent, n_faults: int, n_headers: int, until: float) -> None:
        self._parent, self._until, self._last = parent, until, 0.0
        self._n_faults, self._n_headers = n_faults, n_headers
        self._began = time.monotonic()

    def __call__(self) -> None:
        now, p = time.monotonic(), self._parent
        every = 1.0 if sys.stderr.isatty() else 30.0
        if now - self._last < every:
            return
        self._last = now
        n_headers = p.tallies[Headers.name].done if Headers.name in p.tallies else 0
        n = p.n_done - n_headers
        line = f"{n} of {self._n_faults} faults, {n_headers} of {self._n_headers} headers, "
        line += f"{n / max(1e-9, now - self._began):.1f} faults/s, {len(p.failures)} failures; "
        line += f"at most {max(0.0, self._until - now) / 60:.1f} minutes to go"
        print(f"\r{line} \033[K" if sys.stderr.isatty() else line, end="" if sys.stderr.isatty() else "\n",
              file=sys.stderr, flush=True)  # fmt: skip


def main(args: Sequence[str] | None = None) -> None:
    a = arguments(args)
    began = time.monotonic()
    until = began + 60 * a.minutes
    os.environ |= {"GGML_NO_BACKTRACE": "1", "GRPC_ENABLE_FORK_SUPPORT": "0", "DUO_PROFILES": "on"}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: what was started is killed
    folder, parent = Path(tempfile.mkdtemp(prefix="torture-")), None
    try:
        kinds, notes = usable(a.kinds)
        for note in notes:
            print(note)
        import_all()
        models, rights, cache = prepare(folder)
        parent = Parent(folder, cache, models, rights, a.workers)
        before = earlier(a.out, a.seed) if a.go_on else {}
        begun = before.get("next", {"faults": 0, "headers": 0})
        faults = batches(kinds, a.seed, a.faults) if a.each is None else each(kinds, a.seed, a.each)
        faults = after(faults, begun["faults"])
        headers = after(batches([Headers], a.seed, a.headers), begun["headers"])
        number = next((n for n in (a.only, a.batch, a.header) if n is not None), None)
        if number is not None:
            batch = batch_of(headers if a.header is not None else faults, number)
            parent.keep_logs = True
            print(f"fault {number}: {batch.kind.name}")
            parent.one(batch, number, alone=a.batch is None)
        else:
            n_faults = a.faults if a.each is None else a.each * len(kinds)
            plan = interleaved(faults, n_faults, headers, a.headers)
            parent.next |= begun
            try:
                parent.run(plan, until, Progress(parent, n_faults, a.headers, until))
            except KeyboardInterrupt:
                parent.end()
                print("\n" + table(parent.tallies))
                print(f"interrupted after {parent.n_done} faults, {len(parent.failures)} failures; nothing was written")
                raise SystemExit(130) from None
        minutes = (time.monotonic() - began) / 60
        print("\n" + table(parent.tallies))
        for f in parent.failures:
            print(f.line(a.seed) + (f"\n{f.log}" if number is not None else ""))
        print(f"{parent.n_done} faults in {minutes:.1f} minutes, {len(parent.failures)} failures")
        if a.out is not None:
            date = datetime.now().astimezone().isoformat(timespec="seconds")
            found = sum_of(before, as_json(parent, sys.argv, a, minutes, date, notes))
            a.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
            for f in parent.failures:
                a.out.with_suffix(f".{f.number}.log").write_text(f.log, "utf-8")
        if parent.failures:
            raise SystemExit(1)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        if parent is not None:
            parent.end()
        shutil.rmtree(folder, ignore_errors=True)


def import_all() -> None:
    """What processes of faults need: they are forked."""
    import importlib

    from duo.cli.main import COMMANDS

    for name in ("asyncio", "httpx", "grpc", "numpy"):
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    for module, _ in COMMANDS.values():
        importlib.import_module(f"duo.cli.commands.{module.partition('.')[0]}")
