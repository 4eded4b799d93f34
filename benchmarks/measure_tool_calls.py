"""Calls of tools and answers with a schema under every kind of draft: whether each is plain's, and whether all parse.

PYTHONPATH=tools:tests python -m benchmarks.measure_tool_calls --pairs demo,mtp --out FILE

The target alone writes each chat first, one at a time. Then each draft guesses while 1 to 8 chats are written at once,
whole and as streams, while models work at the same time and in turn. Half of the chats are greedy, the others are drawn
with a seed. Guesses are verified whether that pays or not, 1, 4, 8 or any number in a pass. What is asked, and what is
compared, is that of `duo prove`. --out is written after each draft; a pair that it has already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.tool_call_pairs import PAIRS, Drafted

from duo import BadValueError, Duo
from duo.benchmark.bench.head import command_of, head_of
from duo.benchmark.prove.cases import NONE, Case, Guesses, How
from duo.benchmark.prove.pair import PairWriter, n_context
from duo.benchmark.prove.plan import TEMPERATURE, Item, ProofPlan, prompts_of
from duo.benchmark.prove.report import findings
from duo.benchmark.prove.run import Proof
from duo.benchmark.prove.tally import Tally, counts, together
from duo.cli.prove_pair import ALONE, Load
from duo.generation.stream import Stream
from duo.placement import kernels

SLOTS = (1, 2, 3, 4, 5, 6, 7, 8)
SEED = 1


class Chats(ProofPlan):
    """Every second chat is drawn with a seed, so that its arguments are not the likeliest ones."""

    def sampling(self, item: Item) -> dict[str, Any]:
        return {"temperature": TEMPERATURE, "seed": self.seed + item.i} if item.i % 2 else {"temperature": 0.0}

    def chats(self) -> list[Item]:
        return [x for two in zip(self.items("call"), self.items("schema"), strict=True) for x in two]


def cases_of(chats: Sequence[Item], guesses: Guesses, n: int, rounds: int, *, streamed: bool) -> Iterator[Case]:
    """Of n chats at once, `rounds` times as many in each mode: others of `chats` in each case."""
    for at, mode in enumerate(guesses.modes):
        start = (2 * n + at) * rounds
        items = tuple(islice(cycle(chats), start, start + rounds * n))
        name = f"{mode}, {'streamed' if streamed else 'whole'}"
        yield Case(name, items, How(mode, guesses.options, streamed=streamed), n)


class CountedDuo(Duo):
    """Keeps its texts, because an answer in a chat does not say what was guessed."""

    def __init__(self, *models: str | None, **options: Any) -> None:
        self.streams: list[Stream] = []
        super().__init__(*models, **options)
        add = self.session.add

        def kept(stream: Stream) -> None:
            self.streams.append(stream)
            add(stream)

        self.session.add = kept  # type: ignore[method-assign]

    def count(self, tally: Tally) -> None:
        """Adds the guesses of the texts since the last call."""
        for stream in self.streams:
            tally.n_drafted += stream.timings.get("draft_n", 0)
            tally.n_accepted += stream.timings.get("draft_n_accepted", 0)
        self.streams.clear()


def options_of(target: str, plan: Chats) -> tuple[int, dict[str, Any]]:
    """The tokens of the longest chat, and how the target is loaded each time. Raises DuoError."""
    exact = {"cpu_kernels": "duo"} if kernels.available() else {"cpu_kernels": "stock", "strict": True}
    with Duo(target, vocab_only=True) as d:
        try:
            d.chat_template  # noqa: B018 - raises BadValueError
        except BadValueError:
            exact["chat_template"] = "chatml"
        return n_context(d, plan, plan.chats()), exact


@dataclass(frozen=True)
class Wish:
    """chats: different ones, half of them calls. rounds: chats for each slot and case."""

    chats: int
    slots: tuple[int, ...] = SLOTS
    rounds: int = 2
    modes: tuple[str, ...] = ("sync", "async")


def measure(drafted: Drafted, wish: Wish, proof: Proof) -> Iterator[dict[str, Any]]:
    """Adds to the proof. Gives the target and its options for the record, after each draft. Raises DuoError."""
    plan = Chats(prompts_of(None, wish.chats), 1, SEED, (1,))
    n_ctx, options = options_of(drafted.target, plan)

    def opened(load: Load, n: int) -> CountedDuo:
        spec_type = {} if load.spec_type is None else {"spec_type": list(load.spec_type)}
        return CountedDuo(drafted.target, load.draft, n_ctx=n * n_ctx, n_parallel=n, **options, **spec_type)

    with opened(ALONE, 1) as d:
        is_exact = d.target.same_bits
    if not is_exact:  # some of its weights have no kernels of duo's
        options["strict"] = True
    with opened(ALONE, 1) as d:
        head = head_of([d.target], "", {})
        proof.refer(PairWriter(d, plan), plan.chats(), NONE.name, How())
    for load in drafted.loads:
        for n in wish.slots:
            with opened(load, n) as d:
                _write(proof, d, plan, load, n, wish)
        yield {"target": head["target"], "options": options}


def _write(proof: Proof, d: CountedDuo, plan: Chats, load: Load, n: int, wish: Wish) -> None:
    writer = PairWriter(d, plan)
    for guesses in load.guesses:
        for streamed in (False, True):
            for case in cases_of(plan.chats(), guesses, n, wish.rounds, streamed=streamed):
                if case.how.mode in wish.modes:
                    d.count(proof.measure(guesses.name, writer, case))


def record(drafted: Drafted, proof: Proof, target: dict[str, Any]) -> dict[str, Any]:
    """A row for each draft and way of writing, the sum over all numbers of chats at once."""
    names = dict.fromkeys((t.guesses, t.case) for t in proof.tallies)
    rows = []
    for guesses, case in names:
        same = [t for t in proof.tallies if (t.guesses, t.case) == (guesses, case)]
        rows.append({"guesses": guesses, "case": case, "at_once": [t.at_once for t in same],
                     **counts(together(same)), "failures": [f for t in same for f in t.failures]})  # fmt: skip
    drafts = [Path(load.draft).name for load in drafted.loads if load.draft]
    return {**target, "drafts": drafts, "rows": rows, "findings": findings(proof.tallies),
            "notes": list(proof.notes)}  # fmt: skip


def table(pairs: dict[str, Any]) -> Iterator[str]:
    yield "| target | guesses | chats | differ | do not parse | cut | failed | guesses verified | right |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, pair in pairs.items():
        for guesses in dict.fromkeys(r["guesses"] for r in pair["rows"]):
            rows = [r for r in pair["rows"] if r["guesses"] == guesses]
            n = {k: sum(r[k] for r in rows) for k, v in rows[0].items() if isinstance(v, int)}
            right = f"{n['draft_n_accepted'] / n['draft_n']:.0%}" if n["draft_n"] else ""
            yield (
                f"| {name} | {guesses} | {n['n_texts']} | {n['n_different']} | {n['n_bad_arguments']} "
                f"| {n['n_texts'] - n['n_arguments']} | {n['n_failed']} | {n['draft_n'] or ''} | {right} |"
            )


def progress(done: int, _: int, name: str) -> None:
    print(f"\r{done} {name:20}", end="", file=sys.stderr)


def is_clean(tallies: Sequence[Tally]) -> bool:
    return all(t.is_clean for t in tallies)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", default="demo,mtp", help=f"of {', '.join(PAIRS)}")
    p.add_argument("--chats", type=int, default=48, help="different ones for each target")
    p.add_argument("--slots", default=",".join(map(str, SLOTS)), help="numbers of chats at once")
    p.add_argument("--rounds", type=int, default=2, help="chats for each slot and case")
    p.add_argument("--modes", default="sync,async")
    p.add_argument("--guesses", help="only these, by their names in the table, comma-separated")
    p.add_argument("--out", type=Path, required=True)
    args = p.parse_args()
    found: dict[str, Any] = json.loads(args.out.read_text("utf-8")) if args.out.exists() else {"pairs": {}}
    slots, clean = tuple(map(int, args.slots.split(","))), True
    with tempfile.TemporaryDirectory() as folder:
        for name in args.pairs.split(","):
            key = f"{name}: {args.guesses}" if args.guesses else name
            if key in found["pairs"]:
                continue
            drafted, proof = PAIRS[name](Path(folder)), Proof(progress)
            if args.guesses:
                drafted = drafted.only(args.guesses.split(","))
            wish = Wish(args.chats, slots, args.rounds, tuple(args.modes.split(",")))
            head = {k: v for k, v in head_of([], command_of(sys.argv), {}).items() if k != "settings"}
            for target in measure(drafted, wish, proof):
                found["pairs"][key] = {**head, **record(drafted, proof, target)}
                args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
            clean = clean and is_clean(proof.tallies)
    print(file=sys.stderr)
    print("\n".join(table(found["pairs"])))
    for name, pair in found["pairs"].items():
        print(*(f"{name}: {line}" for line in (*pair["findings"], *pair["notes"])), sep="\n")
    sys.exit(0 if clean else 2)


if __name__ == "__main__":
    main()
