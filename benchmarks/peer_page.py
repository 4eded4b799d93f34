"""The tables of run_peers.py: times, how they compare, and whether bits and texts are the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from benchmarks.peer_figures import BASES, WIDTHS

from duo.support.wording import plural

Found = dict[str, Any]  # of one file and number of threads


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _times(all_found: Sequence[Found]) -> Iterator[list[str]]:
    for found in all_found:
        for name, row in found["programs"].items():
            ms = [row["ms"][str(w)]["median"] for w in WIDTHS]
            cells = [*(f"{x:.1f}" for x in ms), *(f"{x / ms[0]:.2f}" for x in ms[1:])]
            speeds = [f"{row[kind]['median']:.1f}" if row[kind] else "" for kind in ("prompt_per_s", "text_per_s")]
            yield [found["file"], name, *cells, *speeds]


def _to_duo(all_found: Sequence[Found]) -> Iterator[list[str]]:
    for found in all_found:
        own = found["programs"]["duo"]
        for name, row in found["programs"].items():
            if name == "duo":
                continue
            ratios = [f"{row['to_duo'][str(w)]['median']:.2f}" for w in WIDTHS]
            speeds = [
                f"{own[kind]['median'] / row[kind]['median']:.2f}" if row[kind] else ""
                for kind in ("prompt_per_s", "text_per_s")
            ]
            yield [found["file"], name, *ratios, *speeds]


def _bits(all_found: Sequence[Found]) -> Iterator[list[str]]:
    for found in all_found:
        for name, row in found["programs"].items():
            apart = [f"{row['difference'][base]:.2g}" if base in row["difference"] else "" for base in BASES]
            texts = [_equal(row["n_equal_tokens"].get(base, []), found["n_tokens"]) for base in BASES]
            hashes = [f"`{row['logits'][str(w)]}`" for w in WIDTHS]
            yield [found["file"], name, *hashes, f"{row['difference']['itself']:.2g}", *apart, *texts]


def _equal(n_equal: Sequence[int], n_tokens: int) -> str:
    """How many texts are equal, and at which token the first one parts."""
    if not n_equal:
        return ""
    n = sum(x == n_tokens for x in n_equal)
    parts = f", from token {min(n_equal) + 1} on" if n < len(n_equal) else ""
    return f"{n} of {len(n_equal)}{parts}"


def _versions(runs: Sequence[Found]) -> Iterator[str]:
    """Of each program, as its first file says."""
    programs: dict[str, Any] = {}
    for run in runs:
        programs = run["programs"] | programs
    for name, row in programs.items():
        told = "; ".join(f"{k} {' '.join(v) if isinstance(v, list) else v}" for k, v in row["about"].items() if v != "")
        yield f"* **{name}**: {told}"


def _of_threads(n: int, all_found: Sequence[Found]) -> Iterator[str]:
    widths = [str(w) for w in WIDTHS]
    speeds = ["prompt, tokens/s", "text, tokens/s"]
    yield f"## {plural(n, 'thread')}"
    yield "Milliseconds of a pass by its rows, v(n) in passes over one row, tokens/s of a prompt and of greedy text:"
    yield table(["file", "program", *widths, *(f"v({w})" for w in widths[1:]), *speeds], _times(all_found))
    yield "Time / duo's time (above 1: duo is faster), medians of the rounds' ratios:"
    yield table(["file", "program", *widths, "prompt", "text"], _to_duo(all_found))
    yield (
        "Hash of the last row's logits by the width in which the rows before were evaluated, largest difference of a "
        "logit between widths and from the others' at one row, and equal texts:"
    )
    heads = [*widths, "widths", *(f"from {b}" for b in BASES), *(f"texts equal to {b}'s" for b in BASES)]
    yield table(["file", "program", *heads], _bits(all_found))
    for found in all_found:
        for name, why in found["left_out"].items():
            yield f"{name} was left out with {found['file']}: {why}."


def page(found: dict[str, Any]) -> str:
    """found: a file of run_peers.py."""
    runs = list(found["runs"].values())
    parts = [f"{found['machine']} ({', '.join(found['flags'])}), cores {found['cores']}. `{found['command']}`"]
    parts.append("\n".join(_versions(runs)))
    for n in sorted({run["threads"] for run in runs}):
        parts += _of_threads(n, [run for run in runs if run["threads"] == n])
    return "\n\n".join(parts)
