"""The target's LoRA adapters, and the scales that requests give them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from duo.errors import BadValueError, DuoError
from duo.models.header import read_header
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.model import Duo


def shown(duo: Duo) -> list[dict[str, Any]]:
    """As llama-server's GET /lora-adapters."""
    rows = []
    for i, ((path, _), scale) in enumerate(zip(duo.placed.target.loras, duo.lora_scales, strict=True)):
        name = os.fsdecode(path)
        try:
            values: Mapping[str, Any] = read_header(name).values
        except DuoError:  # the file is gone
            values = {}
        about = {key: str(values.get(f"adapter.lora.{key}", "")) for key in ("task_name", "prompt_prefix")}
        rows.append({"id": i, "path": name, "scale": scale, **about})
    return rows


def scales_of(entries: Sequence[object], duo: Duo) -> list[float]:
    """entries: [{"id", "scale"}]. An adapter without an entry has scale 0, as in llama-server. Raises BadValueError."""
    scales = [0.0] * len(duo.placed.target.loras)
    for one in entries:
        i, scale = (one.get("id"), one.get("scale", 0.0)) if isinstance(one, Mapping) else (None, None)
        if type(i) is not int or isinstance(scale, bool) or not isinstance(scale, int | float) or not abs(scale) <= 1e6:
            raise BadValueError(f'lora has {quoted(one)}; write {{"id": 0, "scale": 1.0}}')
        if 0 <= i < len(scales):
            scales[i] = float(scale)
        elif scale:
            raise BadValueError(f"lora names adapter {i}, and there are {len(scales)} (--lora); they count from 0")
    return scales
