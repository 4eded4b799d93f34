"""What the programs of run_peers.py did, and how far they differ."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.run_kernels import spread

WIDTHS = (1, 2, 4, 8)
BASES = ("llama.cpp", "duo")  # with whose logits and texts those of all are compared

Row = npt.NDArray[np.float32]


@dataclass
class Figures:
    """What one program did: a value for each round."""

    about: dict[str, Any]
    ms: dict[int, list[float]] = field(default_factory=lambda: {width: [] for width in WIDTHS})
    prompt: list[float] = field(default_factory=list)  # tokens/s
    text: list[float] = field(default_factory=list)  # tokens/s
    texts: list[list[int]] = field(default_factory=list)
    rows: dict[int, Row] = field(default_factory=dict)


def n_equal(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens before the first that differs."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def difference(a: Row, b: Row) -> float:
    return float(f"{np.abs(a - b).max():.3g}")


def ratios(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [x / y for x, y in zip(a, b, strict=True)]


def record(all_figures: dict[str, Figures]) -> dict[str, Any]:
    """For the file: medians, and comparisons with duo and llama.cpp."""
    out: dict[str, Any] = {}
    own = all_figures["duo"]
    for name, f in all_figures.items():
        first = f.rows[1]
        row: dict[str, Any] = {
            "about": f.about,
            "ms": {str(w): spread(x) for w, x in f.ms.items()},
            "to_duo": {str(w): spread(ratios(x, own.ms[w])) for w, x in f.ms.items()},
            "prompt_per_s": spread(f.prompt) if f.prompt else None,
            "text_per_s": spread(f.text) if f.text else None,
            "logits": {str(w): hashlib.sha256(x.tobytes()).hexdigest()[:12] for w, x in f.rows.items()},
            "difference": {"itself": max(difference(first, x) for x in f.rows.values())},
            "deviation_of_logits": round(float(first.std()), 3),
            "n_equal_tokens": {},
        }
        for base in (b for b in BASES if b in all_figures):
            other = all_figures[base]
            row["difference"][base] = difference(first, other.rows[1])
            row["n_equal_tokens"][base] = [n_equal(a, b) for a, b in zip(f.texts, other.texts, strict=True)]
        out[name] = row
    return out
