"""What the figures of run_real.py show: tables, and ratios of two arms on the same questions."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

LLAMA, TURNS = "llama.cpp plain", "llama.cpp speculative"
ALONE, SYNC, ASYNC = "duo, target alone", "duo sync", "duo async"

Cell = dict[str, Any]
Texts = list[dict[str, Any]]


def whole_speed(text: dict[str, Any]) -> float:
    """Tokens per second from the request to the last token."""
    return float(text["n_tokens"] / text["total_s"])


def later_speed(text: dict[str, Any]) -> float | None:
    """Tokens per second after those of the first pass; None: there were none."""
    n = text["n_tokens"] - text["n_first"]
    return float(n / (text["total_s"] - text["first_s"])) if n > 0 else None


def title(cell: Cell) -> str:
    return f"{cell['place']}, {'greedy' if cell['temperature'] == 0 else 'T = ' + format(cell['temperature'], 'g')}"


def best(cell: Cell, prefix: str) -> str:
    """The arm with the highest median, of those whose names begin so."""
    arms = [name for name in cell["arms"] if name.startswith(prefix)]
    return max(arms, key=lambda name: statistics.median(map(whole_speed, cell["arms"][name])))


def ratios(cell: Cell, arm: str, base: str) -> list[float]:
    """Of whole speeds, question by question."""
    pairs = zip(cell["arms"][arm], cell["arms"][base], strict=True)
    return [whole_speed(a) / whole_speed(b) for a, b in pairs]


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f})"


def _equal(texts: Texts) -> str:
    return f"{sum(t['equal'] for t in texts)} of {len(texts)}"


def of_cell(cell: Cell) -> str:
    """All arms: medians, and the worst question in brackets."""
    heads = ("arm", "tokens/s after the first", "tokens/s of the whole time", "to llama.cpp plain",
             "to duo, target alone", "equal texts", "right guesses")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, texts in cell["arms"].items():
        later = [s for s in map(later_speed, texts) if s is not None]
        right = [t["right"] for t in texts if t["right"] is not None]
        columns = [
            name,
            _spread(later, 1) if later else "",
            _spread([whole_speed(t) for t in texts], 1),
            *(_spread(ratios(cell, name, base), 2) for base in (LLAMA, ALONE)),
            _equal(texts),
            f"{statistics.mean(right):.0%}" if right else "",
        ]
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


def by_category(cell: Cell) -> str:
    """Whole speeds by kind of work: ratios to llama.cpp's plain loop."""
    turns, syncs = (
        [best(cell, kind)] if any(name.startswith(kind) for name in cell["arms"]) else [] for kind in (TURNS, SYNC)
    )
    arms = (
        {f"llama.cpp {name.removeprefix(TURNS + ' ')}": name for name in turns}
        | {"target alone": ALONE}
        | {name.removeprefix("duo "): name for name in syncs}
        | {"async": ASYNC}
    )
    heads = ("work", "prompt, tokens", "llama.cpp plain, tokens/s", *arms)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    base = cell["arms"][LLAMA]
    for category in dict.fromkeys(t["category"] for t in base):
        at = [i for i, t in enumerate(base) if t["category"] == category]
        columns = [f"{statistics.median(base[i]['n_prompt'] for i in at):.0f}",
                   f"{statistics.median(whole_speed(base[i]) for i in at):.1f}"]  # fmt: skip
        for arm in arms.values():
            found = ratios(cell, arm, LLAMA)
            columns.append(f"{statistics.median(found[i] for i in at):.2f}")
        lines.append(f"| {category.replace('_', ' ')} | {' | '.join(columns)} |")
    return "\n".join(lines)


def printed(cells: Sequence[Cell]) -> Iterator[str]:
    for cell in cells:
        yield f"{title(cell)}:\n\n{of_cell(cell)}"
    for cell in cells:
        yield f"{title(cell)}, by kind of work, to llama.cpp's plain loop (whole time):\n\n{by_category(cell)}"
