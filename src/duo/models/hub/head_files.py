"""Finds the draft heads in a repository by their names, by llama.cpp's rules (common/download.cpp, common/arg.cpp)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from duo.models.hub.listing import is_first_part, quant_of
from duo.options.validate import generate_options

# Which of several heads is taken if none is asked for: llama.cpp's order.
KINDS = ("mtp-", "dspark-", "dflash-", "eagle3-")
PROJECTOR = "mmproj"  # of pictures: it is looked for in the same way


def kinds_of(spec_type: Any) -> tuple[str, ...]:
    """The heads that a draft's repository is searched for. spec_type: as the user gave it; None: nothing was said, so
    any will do. Raises BadValueError: it is no --spec-type."""
    if spec_type is None:
        return KINDS
    types = generate_options({"spec_type": spec_type})["spec_type"]
    return tuple(kind for kind in KINDS if f"draft-{kind[:-1]}" in types)


def find(names: Sequence[str], kinds: Sequence[str], model: str, quant: str | None) -> str | None:
    """The file of the first of these kinds that the repository has. model: the model file that was chosen, or empty;
    the head lies in its folder or above it. The kind may stand anywhere in the path (find_best_sibling). Among
    several of a kind: the deepest one, of this quantisation, or with about as many bits."""
    return next((name for kind in kinds if (name := _best(names, kind, model, quant))), None)


def _best(names: Sequence[str], prefix: str, model: str, quant: str | None) -> str | None:
    folder = model.split("/")[:-1]
    bits = _bits(quant or quant_of(model))

    def rank(name: str) -> tuple[int, bool, int]:
        exact = quant is not None and f"-{quant}.".upper() in name.upper()
        return name.count("/"), exact, -abs(_bits(quant_of(name)) - bits)

    near = [n for n in names if n.endswith(".gguf") and prefix in n and is_first_part(n) and _is_in(n, folder)]
    return max(near, key=rank, default=None)


def _is_in(name: str, folder: Sequence[str]) -> bool:
    """Whether a file lies in this folder or in one above it."""
    parents = name.split("/")[:-1]
    return parents == list(folder[: len(parents)])


def _bits(quant: str) -> int:
    """About how many bits a weight has: 4 of IQ4_XS."""
    digits = re.search(r"\d+", quant)
    return int(digits[0]) if digits else 0
