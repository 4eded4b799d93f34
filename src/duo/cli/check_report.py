"""What `duo check` prints for people."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from duo.cli.first_line import STOCK_MEANS, another_vocabulary
from duo.support.wording import gigabytes, plural

if TYPE_CHECKING:
    from duo.models.header import Header
    from duo.placement.compatibility import PairCheck, VocabularyFacts


def _token(text: str, number: int, added: bool) -> str:
    if number < 0:
        return "none"
    return f"{number} {text!r}, {'added' if added else 'not added'}"


def print_check(c: PairCheck, cache_types: tuple[str, str]) -> None:
    """cache_types: of the draft's keys and values."""
    from rich.console import Console
    from rich.table import Table

    from duo import _core
    from duo.models.head import cache_warning, refused_layers
    from duo.placement import states

    out = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    both = [m for m in (c.target, c.draft) if m is not None]
    table = Table("", *("target", "draft")[: len(both)], box=None, padding=(0, 2, 0, 0))
    headers = [m.header for m in both]
    files = [os.path.basename(h.path) + (f" (and {h.n_parts - 1} more)" if h.n_parts > 1 else "") for h in headers]
    table.add_row("file", *files)
    table.add_row("model", *(f"{h.architecture}, {_count(h.n_parameters)}, {h.weight_type}" for h in headers))
    vocabularies = [m.vocabulary for m in both]
    table.add_row("tokenizer", *(f"{v.type}, {v.n_tokens} tokens" for v in vocabularies))
    table.add_row("begin", *(_token(v.bos_text, v.bos, v.add_bos) for v in vocabularies))
    table.add_row("end", *(_token(v.eos_text, v.eos, v.add_eos) for v in vocabularies))
    table.add_row("context", *(f"{m.n_ctx} tokens" for m in both))
    needs = [m.need for m in both]
    table.add_row("weights", *(gigabytes(n.total_weights) for n in needs))
    table.add_row("types", *(_types(h) for h in headers))
    table.add_row("cache", *(gigabytes(n.total_cache) for n in needs))
    table.add_row("work", *(f"about {gigabytes(max(n.work, n.logits))}" for n in needs))
    table.add_row("together", *(gigabytes(n.total) for n in needs))
    out.print(table)
    if c.draft is not None and (head := c.draft.head):
        own = head.kind == "mtp" and c.draft.header.has_trunk
        out.print(f"the draft is {'its own ' if own else ''}" + head.line())
        for line in cache_warning(*cache_types):
            out.print(line)
    elif (n := c.target.header.n_mtp) and _core.runs_mtp(c.target.header.architecture):
        out.print(f"the target has {plural(n, 'MTP layer')}, which can be its draft: --spec-type draft-mtp without -md")
    elif line := refused_layers(c.target.header):
        out.print(line)
    if line := states.sentence(c.target.header):
        out.print(line)
    if line := _stock_sentence(c.target.header):
        out.print(line)
    out.print(
        c.placement.line() + ("" if c.fits else f"; the CPU has too little memory ({gigabytes(c.host_free)} free)")
    )
    if not c.compatible:
        out.print(c.why_not)
    elif c.draft is None:
        return
    elif c.shared is not None:
        out.print(f"the draft has {another_vocabulary(c.shared)} ({c.difference})")
    else:
        out.print("the draft fits the target" + _padding(*vocabularies))


N_TYPES_SHOWN, SHARE_SHOWN = 4, 0.02


def _main_types(h: Header) -> dict[str, int]:
    """The types that take a part of the matrices' bytes that is worth a word."""
    by_type = h.matrix_bytes
    least = SHARE_SHOWN * sum(by_type.values())
    return {t: n for t, n in list(by_type.items())[:N_TYPES_SHOWN] if n >= least}


def _types(h: Header) -> str:
    return ", ".join(f"{t} {gigabytes(n)}" for t, n in _main_types(h).items())


def _stock_sentence(h: Header) -> str:
    """Which of the target's types duo's kernels do not multiply, and what this means; empty: none."""
    from duo import _core

    name, _ = _core.kernels()
    other = [t for t in _main_types(h) if t not in _core.kernel_types()]
    if not name or not other:
        return ""
    return f"on the CPU llama.cpp's own kernels compute {' and '.join(other)}; there {STOCK_MEANS}"


def _padding(target: VocabularyFacts, draft: VocabularyFacts) -> str:
    n = abs(target.n_tokens - draft.n_tokens)
    return f" (the vocabularies differ by {n} tokens at the end, which does not matter)" if n else ""


def _count(n: int) -> str:
    return f"{n / 1e9:.1f}B" if n >= 1e9 else f"{n / 1e6:.1f}M"
