"""llama.cpp's --samplers and --sampler-seq: which samplers are applied, and in which order.

duo applies them in llama.cpp's own order. One that is left out is switched off.
"""

from __future__ import annotations

from typing import NamedTuple


class Sampler(NamedTuple):
    names: tuple[str, ...]  # llama.cpp's common/sampling.cpp, with its aliases
    letter: str
    off: tuple[str, ...]  # duo's arguments that switch it off


ORDER = (
    Sampler(
        ("penalties",), "e", ("--repeat-penalty", "1", "--presence-penalty", "0", "--frequency-penalty", "0")
    ),
    Sampler(("dry",), "d", ("--dry-multiplier", "0")),
    Sampler(("top_n_sigma", "top-n-sigma"), "s", ("--top-nsigma", "-1")),
    Sampler(("top_k", "top-k"), "k", ("--top-k", "0")),
    Sampler(("typ_p", "typ-p", "typ", "typical-p", "typical"), "y", ("--typical", "1")),
    Sampler(("top_p", "top-p", "nucleus"), "p", ("--top-p", "1")),
    Sampler(("min_p", "min-p"), "m", ("--min-p", "0")),
    Sampler(("xtc",), "x", ("--xtc-probability", "0")),
    Sampler(("temperature", "temp"), "t", ("--temp", "1", "--dynatemp-range", "0")),
)  # fmt: skip
_LETTERS = "".join(s.letter for s in ORDER)


def _arguments(chosen: list[int]) -> list[str]:
    if chosen != sorted(set(chosen)):
        raise ValueError(f"duo applies samplers in the order {';'.join(s.names[0] for s in ORDER)}")
    return [arg for i, s in enumerate(ORDER) if i not in chosen for arg in s.off]


def of_names(value: str) -> list[str]:
    """duo's arguments for "top_k;top_p;temperature". Raises ValueError."""
    index = {name: i for i, s in enumerate(ORDER) for name in s.names}
    names = [n for n in value.split(";") if n]
    for n in names:
        if n not in index:
            raise ValueError(f"duo has no sampler {n!r}; it has {', '.join(s.names[0] for s in ORDER)}")
    return _arguments([index[n] for n in names])


def of_letters(value: str) -> list[str]:
    """duo's arguments for "kpt". Raises ValueError."""
    for letter in value:
        if letter not in _LETTERS:
            raise ValueError(f"duo has no sampler {letter!r}; it has {_LETTERS}")
    return _arguments([_LETTERS.index(letter) for letter in value])
