"""The target's LoRA adapters, and what a request says of them. Their scales are set when the models are loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from duo.errors import BadValueError, DuoError
from duo.models.header import read_header
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.model import Duo


def scales_of(duo: Duo) -> list[float]:
    """By the adapters' numbers."""
    return [scale for _path, scale in duo.placed.target.loras]


def shown(duo: Duo) -> list[dict[str, Any]]:
    """As llama-server's GET /lora-adapters."""
    found = []
    for i, (path, scale) in enumerate(duo.placed.target.loras):
        name = os.fsdecode(path)
        try:
            values: Mapping[str, Any] = read_header(name).values
        except DuoError:  # the file is gone
            values = {}
        about = {key: str(values.get(f"adapter.lora.{key}", "")) for key in ("task_name", "prompt_prefix")}
        found.append({"id": i, "path": name, "scale": scale, **about})
    return found


def check_scales(asked: Sequence[object], duo: Duo) -> None:
    """asked: [{"id", "scale"}], and adapters that are not there have scale 0. Raises BadValueError: it is something
    else, or these are not the scales that the adapters have."""
    now = scales_of(duo)
    wanted = [0.0] * len(now)
    for one in asked:
        i, scale = (one.get("id"), one.get("scale", 0.0)) if isinstance(one, Mapping) else (None, None)
        if not isinstance(i, int) or isinstance(i, bool) or not isinstance(scale, int | float):
            raise BadValueError(f'lora has {quoted(one)}; write {{"id": 0, "scale": 1.0}}')
        if 0 <= i < len(now):
            wanted[i] = float(scale)
        elif scale:
            raise BadValueError(f"lora names adapter {i}, and there are {len(now)} (--lora); they count from 0")
    if any(abs(a - b) > 1e-6 for a, b in zip(now, wanted, strict=True)):
        raise BadValueError(
            f"the LoRA adapters have the scales {now}, not {wanted}; they are set at the server's start (--lora-scaled)"
        )
