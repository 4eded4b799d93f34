"""llama.cpp, ik_llama.cpp and duo side by side, on the same files, rows and cores: times of passes, and their bits.

    python -m venv ik && ik/bin/pip install ik-llama-cpp-python
    python -m benchmarks.run_peers MODEL.gguf --types q8_0,q6_K --words 600M --ik ik/bin/python --out FILE
    python -m benchmarks.run_peers --page FILE

Each program has a process of its own (peer_programs.py) in which the model stays loaded. They take turns, in a rotating
order: a turn is some passes of one width after the same 64 tokens, all of whose logits are asked for, or a prompt of
512 tokens, or a text. A figure is the median of the rounds, of the median of a turn. Other tokens are read in each
round. The hash is that of the last row of the same 8 tokens, evaluated so many at a time: equal hashes, equal bits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import models
from benchmarks.about_machine import flags
from benchmarks.mixture_words import PROMPTS, widened
from benchmarks.peer_figures import WIDTHS, Figures, record
from benchmarks.peer_mixture import biased
from benchmarks.peer_page import page
from benchmarks.peer_process import ADVICE, EndedError, Interpreter, Peer, ik_interpreter
from benchmarks.peer_programs import PROGRAMS, USUAL
from benchmarks.run_pair import cores

from duo.benchmark.bench.head import command_of, machine, settings_of
from duo.benchmark.bench.questions import read
from duo.support.wording import plural

N_CONTEXT, N_PROMPT = 64, 512
N_PASSES = 3  # of a turn


class Race:
    """All programs with one file. One that ends is left out from there on."""

    def __init__(self, peers: dict[str, Peer], left_out: dict[str, str], said: str) -> None:
        self.peers, self.left_out = peers, left_out
        self.figures = {name: Figures(peer.about) for name, peer in peers.items()}
        self._said, self._began, self._turn = said, time.monotonic(), 0

    def turn(self, do: str, **order: Any) -> Iterator[tuple[Figures, Any]]:
        """What each program answers; another one begins than last time."""
        names = list(self.peers)
        start = self._turn % len(names)
        self._turn += 1
        for name in names[start:] + names[:start]:
            try:
                answer = self.peers[name].ask(do, **order)
            except EndedError as e:
                if name == "duo":
                    raise SystemExit(f"duo has ended: {e}") from None
                self.left_out[name] = f"{e} ({do})"
                del self.peers[name], self.figures[name]
                continue
            yield self.figures[name], answer

    def say(self, what: str) -> None:
        print(f"{self._said}: {what}, {time.monotonic() - self._began:.0f} s", file=sys.stderr, flush=True)

    def run(self, args: argparse.Namespace) -> None:
        questions = [q.turns[0] for q in read(PROMPTS)]
        tokenize = self.peers["duo"].ask
        ids = tokenize("tokenize", text="\n\n".join(questions))
        prompts = [tokenize("tokenize", text=q) for q in questions[: args.texts]]
        ids *= 1 + (N_PROMPT + 16 * args.rounds) // len(ids)
        context, tokens = ids[:N_CONTEXT], ids[N_CONTEXT : N_CONTEXT + max(WIDTHS)]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "row"
            for width in WIDTHS:
                for figures, _ in self.turn("row", context=context, tokens=tokens, width=width, file=str(file)):
                    figures.rows[width] = np.frombuffer(file.read_bytes(), np.float32)
        for r in range(args.rounds):
            at = 16 * r
            context, tokens = ids[at : at + N_CONTEXT], ids[at + N_CONTEXT : at + N_CONTEXT + max(WIDTHS)]
            for width in WIDTHS:
                for figures, ms in self.turn("passes", context=context, tokens=tokens[:width], n=N_PASSES):
                    figures.ms[width].append(statistics.median(ms))
            if r < args.prompts:
                for figures, ms in self.turn("prompt", tokens=ids[at : at + N_PROMPT]):
                    figures.prompt.append(1000 * N_PROMPT / ms)
            self.say(f"round {r + 1} of {args.rounds}")
        for i, prompt in enumerate(prompts):
            for figures, (text, speed) in self.turn("text", prompt=prompt, n=args.n):
                figures.text.append(speed)
                figures.texts.append(text)
            self.say(f"text {i + 1} of {len(prompts)}")


def measure(path: Path, on: Sequence[int], args: argparse.Namespace, ik: Interpreter | None) -> dict[str, Any]:
    here = Interpreter()
    peers: dict[str, Peer] = {}
    left_out: dict[str, str] = {}
    with ExitStack() as stack:
        for name in args.programs:
            interpreter = ik if name.startswith("ik_") else here
            if interpreter is None:
                continue
            try:
                peers[name] = Peer(name, interpreter, path, on)
                stack.callback(peers[name].close)
            except EndedError as e:
                left_out[name] = f"{e} (while it was loaded)"
        if "duo" not in peers:
            raise SystemExit(f"duo, with which the others are compared, does not run: {left_out['duo']}")
        race = Race(peers, left_out, f"{path.stem}, {plural(len(on), 'thread')}")
        race.run(args)
    return {
        "file": path.name,
        "threads": len(on),
        "n_tokens": args.n,
        "programs": record(race.figures),
        "left_out": left_out,
    }


def files_of(args: argparse.Namespace) -> list[Path]:
    """The given files, the first one in other types, and the mixture."""
    args.work.mkdir(parents=True, exist_ok=True)
    paths = list(args.models)
    for path in paths:
        if not path.exists():
            raise SystemExit(f"{path} does not exist; give a model file")
    if args.types and not paths:
        raise SystemExit("--types converts the first model file; give one")
    for kind in filter(None, args.types.split(",")):
        if kind not in models.FILE_TYPES:
            raise SystemExit(f"unknown weight type {kind}; give {', '.join(models.FILE_TYPES)}")
        paths.append(models.quantized(args.models[0], args.work / f"{args.models[0].stem}-as-{kind}.gguf", kind))
    if args.words:
        wide = widened(args.words, args.work)
        paths.append(biased(wide, wide.with_name(f"{wide.stem}-biased.gguf")))
    return paths


def names(text: str) -> list[str]:
    """--programs."""
    found = text.split(",")
    if unknown := [name for name in found if name not in PROGRAMS]:
        raise argparse.ArgumentTypeError(f"unknown program {unknown[0]}; give some of {', '.join(PROGRAMS)}")
    if "duo" not in found:
        raise argparse.ArgumentTypeError("the others are compared with duo; name it, too")
    return found


def counts(text: str) -> list[int]:
    """--threads."""
    try:
        found = [int(n) for n in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no list of numbers above 0; give 1,2")
    return found


def ik_of(args: argparse.Namespace) -> Interpreter | None:
    """What runs ik_llama.cpp; None: it is left out."""
    if not any(name.startswith("ik_") for name in args.programs):
        return None
    if args.ik is None:
        print(f"ik_llama.cpp is left out: {ADVICE}", file=sys.stderr)
        return None
    return ik_interpreter(args.ik)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    p.add_argument("--types", default="", help="also the first model, converted to these weight types: q8_0,q6_K")
    p.add_argument("--words", metavar="SIZE", help="also the mixture of tests/data, widened to 600M, 2G, ...")
    p.add_argument("--ik", type=Path, help="Python that has ik-llama-cpp-python, or a folder that has it for this one")
    p.add_argument("--programs", type=names, default=USUAL, help=f"of {', '.join(PROGRAMS)}")
    p.add_argument("--cores", default="0-1", help="LO-HI; n threads run on the first n of them")
    p.add_argument("--threads", type=counts, default=[1, 2], help="numbers of threads: 1,2")
    p.add_argument("--rounds", type=int, default=8, help="of passes")
    p.add_argument("--prompts", type=int, default=2, help="rounds that also read a prompt")
    p.add_argument("--texts", type=int, default=3)
    p.add_argument("-n", type=int, default=64, help="tokens of a text")
    p.add_argument("--work", type=Path, default=Path("build/peers"), help="folder for the model files")
    p.add_argument("--out", type=Path, help="JSON; what it has of other files stays, if the machine is the same")
    p.add_argument("--page", type=Path, metavar="FILE", help="only print the tables of such a JSON")
    args = p.parse_args()
    if args.page:
        print(page(json.loads(args.page.read_text())))
        return
    on = cores(args.cores)
    if max(args.threads) > len(on):
        p.error(f"--threads {max(args.threads)} needs as many cores; --cores names {len(on)}")
    if not args.models and not args.words:
        p.error("give a model file or --words")
    ik = ik_of(args)
    paths = files_of(args)
    found: dict[str, Any] = {"machine": machine(), "flags": flags(), **models.versions(), "cores": args.cores}
    about = {
        "command": command_of(sys.argv),
        "settings": settings_of(vars(args) | {"models": ",".join(m.name for m in args.models)}),
    }
    runs: dict[str, Any] = {}
    if args.out and args.out.exists():
        old = json.loads(args.out.read_text())
        runs = old["runs"] if {key: old.get(key) for key in found} == found else {}
    for path in paths:
        for n in args.threads:
            run = measure(path, on[:n], args, ik)
            runs[f"{run['file']}, {plural(n, 'thread')}"] = run
            if args.out:
                args.out.write_text(json.dumps({**found, **about, "runs": runs}, indent=1) + "\n")
    print(page({**found, **about, "runs": runs}))


if __name__ == "__main__":
    main()
