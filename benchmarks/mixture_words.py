"""The mixture of tests/data, which was trained on real words, as large as it is wanted; and texts that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duo
from duo.benchmark.bench.questions import read
from duo.cli.commands.dev import parse_size
from duo.gguf_tools.widen import widen

SMALL = Path(__file__).parent.parent / "tests" / "data" / "mixture-target.gguf"
PROMPTS = Path(__file__).parent / "prompts" / "completion_dev.jsonl"


def widened(size: str, work: Path) -> Path:
    """The mixture at this size, as Q8_0: its logits, and so its experts, are those of the small one. A file from an
    earlier run is used again."""
    out = work / f"mixture-words-{size}.gguf"
    if not out.exists():
        work.mkdir(parents=True, exist_ok=True)
        n_embd = 1280  # four times the small one's, so that all sums are the same bits
        widen(SMALL, out, size=parse_size(size), n_embd=n_embd)
    return out


def passages(n: int, n_tokens: int) -> list[list[int]]:
    """What the mixture writes after each of n held-out prompts, greedy: n_tokens tokens."""
    how: dict[str, Any] = {"temperature": 0, "max_tokens": n_tokens, "ignore_eos": True}
    with duo.Duo(SMALL, n_ctx=512) as d:
        return [list(d.generate(d.tokenize(q.turns[0]), **how).tokens) for q in read(PROMPTS)[:n]]
