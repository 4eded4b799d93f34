"""The page "What a draft brings you", from the figures of draft_brings.py and run_boxes.py."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.run_boxes import LENGTHS

from duo.benchmark.bench.expected import ACCEPTANCES, PASS_MS_FROM, expected
from duo.models.pairs import entries
from duo.support.other_load import QUIET_CORES

Row = dict[str, Any]
WIDTHS = (2, 3, 5, 9)

HEAD = """# What a draft brings you

<!-- python -m benchmarks.draft_brings writes this page -->

A draft pays off if the tokens that it adds to a pass (a forward pass of the target) are worth more than the time that
it takes. Three numbers decide this, and `duo tune -m TARGET -md DRAFT` measures them on your machine:

* **a**, the acceptance: how often the draft's guess (draft token) is the target's token. It depends on both models, the
  kind of text and the temperature.
* **c**, the time of a draft step divided by the time of a pass over one token. If both models are read from the same
  memory, this is about the ratio of the files' sizes, or less where duo packs the draft smaller.
* **v(n)**, the time of a pass over n tokens divided by the time of a pass over one. On a CPU it depends on the kernels
  and the type of the weights ([kernels.md](kernels.md)).

With k guesses in a pass, turn-taking is (1 + a + ... + a^k) / (v(k+1) + k c) times as fast as the target alone. If the
draft has a device of its own, its time is hidden behind the passes, up to a limit of 1/c."""

ADVICE = """## When not to use a draft

* **Both models fit on one GPU.** In the one measurement there, duo with a draft had 0.96 of llama.cpp's speed without
  one ([benchmarks/gpu](../benchmarks/gpu/README.md)).
* **The target is small.** For a target of 1 to 3 GB there are few drafts that are much smaller. On one CPU both models
  read the same memory, so the target waits while the draft reads.
* **Both models share the cores, and no length in the tables above pays off.** Give the draft a device of its own, or
  leave it out. `--draft auto` notices this and stops guessing, but the draft stays in memory.
* **Stock CPU kernels** (llama.cpp's own). Four tokens take 1.4 to 5.8 times as long as one. `duo doctor -m TARGET` says
  which kernels a model has.
* **Short answers to long prompts.** The draft must read the prompt, or a part of it (`--draft-window`). Where both
  models share the cores, an answer of a few tokens does not make up for that.
* **Many texts at once.** A pass over several texts is wide already, and guesses make it wider. Measure it with
  `duo bench --slots 1,2,4`.
* **The text repeats its prompt** (edits, summaries). N-grams guess without a second model: on a CPU duo uses them by
  itself, on a GPU try `--spec-type ngram-map-k`.

The gain is largest when the target is at least ten times the draft's size. With the target on 16 CPU cores and the
draft on a GPU, duo was 2.29 times as fast as the CPU alone, in a first measurement with a target of 7.2 GB made for
the benchmark ([benchmarks/gpu](../benchmarks/gpu/README.md)). A target that is partly on the GPU was not measured with
a draft. On two machines ([remote.md](remote.md)) a draft should pay off, too."""


def _shares(values: Sequence[float]) -> str:
    return " ".join(f"{100 * a:.0f}" for a in values[:4])


def _text(r: Row) -> str:
    return "greedy" if r["temperature"] == 0 else f"T = {r['temperature']:g}"


def _row(r: Row) -> str:
    one = r["pass_ms"]["1"]
    beside = r["step_ms"].get("1")
    best = f"sync {r['n_sync']}"
    plain = r["measured"]["plain"]
    cells = [
        r["pair"],
        r["place"].lower(),
        _text(r),
        _shares(r["acceptance"]),
        f"{r['step_alone_ms'] / one:.2f}" + ("" if beside is None else f", {beside / one:.2f}"),
        " ".join(f"{r['pass_ms'][str(w)] / one:.2f}" if str(w) in r["pass_ms"] else "-" for w in WIDTHS),
        f"{r['slowdown']:.2f}",
        f"{plain:.1f}",
        f"{r['measured'][best] / plain:.2f} ({r['n_sync']})",
        f"{r['measured']['async auto'] / plain:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def measured(rows: Sequence[Row]) -> str:
    heads = ("pair", "placement", "text", "a, %, by guess", "c: alone, beside", f"v of {', '.join(map(str, WIDTHS))}",
             "slowdown", "plain, tokens/s", "best turn-taking (length)", "async")  # fmt: skip
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *map(_row, rows)])


def of_pairs() -> str:
    """For the pairs of models.yaml."""
    heads = ["pair", "target, draft, GB", "c", *(f"same device, a = {a:g}" for a in ACCEPTANCES),
             *(f"own device, a = {a:g}" for a in ACCEPTANCES)]  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, entry in entries().items():
        e = expected(entry.pair)
        if e is None:
            continue
        cells = [name, f"{e.target_gb:g}, {e.draft_gb:g}", f"{e.c:.2f}"]
        cells += [f"{t.speed:.2f} ({t.n_draft})" if t.speed > 1 else "none" for t in e.turns]
        cells += [f"{speed:.2f}" for speed in e.own_device]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


BOXES = """## Boxes that we do not have

This table says what you may expect of a larger machine, by a, c and v. The engine, the planner and their threads are
the real ones. The models are scripted: a pass and a step only take their time, and guesses are right at the given
rate. The times are of the order that people report for such boxes; they are not measurements of duo: 450 ms for a 70B
(Q4_K_M) of which half is in RAM, 490 ms for one in Q8_0 on 30 cores
([llama_duo](https://github.com/okuvshynov/llama_duo)), 28 ms for a mixture of experts (MoE) whose experts are in RAM.
How much longer a pass over more rows takes comes from measured kernels, as if all of the target were on the CPU. A
network of 10 Gbit/s adds 1.4 ms to each pass: 1.3 ms, which duo's messages take on loopback, and 0.1 ms. Each model has
a device of its own, and nothing slows the other model down. The draft head is as good on its own states as on the
target's, which a real head is for a few steps ([heads.md](../benchmarks/history/heads.md))."""


def _turns(row: Mapping[str, Any]) -> dict[int, float]:
    """Multiples of the target alone by number of guesses."""
    return {int(name.split()[1]): x for name, x in row["to_plain"].items() if name.startswith("sync ")}


def boxes(found: Mapping[str, Any]) -> str:
    """The table of run_boxes.py: multiples of the target alone."""
    heads = ["box", "target alone, tokens/s", "v from", "v(4), v(8)", "c", "a",
             *(f"turn-taking, {n} guesses" for n in LENGTHS), "its best length", "async", "async / the best length",
             "limit of a chain"]  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for r in found["rows"]:
        turns = _turns(r)
        best = max(turns, key=lambda n: turns[n])
        ahead = r["to_plain"]["async auto"]
        cells = [r["box"], f"{r['plain_per_second']:.1f}", r["curve"]["name"], ", ".join(f"{x:.2f}" for x in r["v"]),
                 f"{r['c']:.2f}", f"{r['a']:g}", *(f"{turns[n]:.2f}" for n in LENGTHS), f"{turns[best]:.2f} ({best})",
                 f"{ahead:.2f}", f"{ahead / turns[best]:.2f}", f"{r['formula_bound']:.2f}"]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _of_boxes(found: Mapping[str, Any]) -> Iterator[str]:
    settings, rows = found["settings"], found["rows"]
    best = [max(_turns(r).values()) for r in rows]
    ahead = [r["to_plain"]["async auto"] for r in rows]
    to_best = [x / y for x, y in zip(ahead, best, strict=True)]
    yield BOXES
    yield boxes(found)
    slow = sum(min(r["to_plain"].values()) < 0.99 for r in rows)
    exact = min(r["plain_per_second"] * float(r["spec"].partition("pass=")[2].removesuffix("ms")) / 1e3 for r in rows)
    yield (
        f"`{found['command']}`: medians of {settings['questions']} texts of {settings['n']} tokens, one of them the "
        "pair's first. Turn-taking always makes the given number of guesses, as in programs without a planner. Its "
        "best length is chosen afterwards, among these three and the one that the formula of `duo tune` names. The "
        "last column is the limit of a chain of guesses if the target never waits for the draft; preparing for several "
        f"outcomes can exceed it. Async brings {min(ahead):.2f} to {max(ahead):.2f}, which is {min(to_best):.2f} to "
        f"{max(to_best):.2f} of the best length (median {statistics.median(to_best):.2f}). A fixed length "
        f"that does not fit loses: in {slow} of {len(rows)} rows one of them is slower than the target alone. The "
        f"target alone reached at least {exact:.1%} of its scripted speed, so the machine kept the times."
    )


def _of_real(found: Mapping[str, Any]) -> Iterator[str]:
    rows = found["rows"]
    real = [r for r in rows if r["pair"] != rows[-1]["pair"]]
    yield (
        f"{found['machine']}; three questions of Spec-Bench in ChatML. a: acceptance of the first guess, then of the "
        "next ones if those before are right. c: for a draft step while the target waits, and while it works. "
        "Slowdown: of a pass while the draft works. The last two columns are multiples of plain decoding with "
        "both models loaded."
    ) + _noise(rows)
    yield measured(rows)
    yield "What `duo tune` says of it:"
    yield "\n".join(f"* {r['pair']}, {r['place'].lower()}, {_text(r)}: {r['advice']['reasons'][0]}" for r in real)


def page(found: Mapping[str, Any] | None, scripted: Mapping[str, Any] | None) -> str:
    """found: what draft_brings.py measured. scripted: what run_boxes.py did. None: nothing so far."""
    parts = [
        HEAD,
        "## Measured",
        *(_of_real(found) if found else ["Not measured yet: `make models`, then `python -m benchmarks.draft_brings`."]),
        "## What to expect of other pairs",
        "These are the pairs of `duo pairs` that have a draft model, except mixtures of experts (MoE): there, sizes do "
        "not tell c and v, because a pass reads only some experts. The figures are computed by the formulas of `duo "
        "tune`; `duo pairs show NAME` says the same where no measurement is known. c is the ratio of the sizes in "
        f"memory. v is that of a Q4_K_M target on one core in [make bench](../benchmarks/report.md) ({PASS_MS_FROM}). "
        "Speeds are multiples of the target alone. Same device: turn-taking at the best length (in brackets); none: no "
        "length pays off. Own device: the limit where the draft's device is as fast as the target's and all its steps "
        "are hidden. A faster device has a smaller c. The acceptance (a) depends on the text; `duo tune` says which "
        "column is yours.",
        of_pairs(),
        *(_of_boxes(scripted) if scripted else ()),
        ADVICE,
    ]
    return "\n\n".join(_wrapped(part) for part in parts) + "\n"


def _noise(rows: Sequence[Row]) -> str:
    others = max(r.get("other_cores") or 0.0 for r in rows)
    if others <= QUIET_CORES:
        return ""
    return f" Other programs used up to {others:.1f} cores meanwhile, so times and speeds are those of a busy machine."


def _wrapped(part: str) -> str:
    """Paragraphs in lines of 120; lists, tables and what has lines already stay."""
    return part if "\n" in part or part.startswith(("*", "|")) else textwrap.fill(part, 120, break_on_hyphens=False)
