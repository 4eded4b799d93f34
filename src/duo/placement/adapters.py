"""What LoRA adapters need: each of their matrices is beside the one that it changes (llama-adapter.cpp)."""

from __future__ import annotations

import os
from dataclasses import replace

from duo.errors import DuoError
from duo.models.header import Header, TensorInfo, read_header
from duo.options.model import ModelOptions
from duo.placement.memory import Need, kept_on_cpu


def _files(m: ModelOptions) -> list[str]:
    """Those that there are; loading reports the others."""
    o = m.context
    return [f for f in [*(o["lora"] or ()), *(o["lora_scaled"] or {})] if os.path.isfile(f)]


def n_adapter_bytes(m: ModelOptions) -> int:
    return sum(os.path.getsize(f) for f in _files(m))


def _tensors(file: str) -> tuple[TensorInfo, ...]:
    """None of a file that cannot be read, which loading reports."""
    try:
        return read_header(file).tensors
    except DuoError:
        return ()


def with_adapters(need: Need, m: ModelOptions, h: Header) -> Need:
    """The need of the model, whose header is h, with its adapters."""
    tensors = [t for f in _files(m) for t in _tensors(f)]
    if not tensors:
        return need
    on_cpu = kept_on_cpu(h, m.override_tensors)
    weights, output, host = list(need.weights), need.output, need.host
    for t in tensors:
        layer, changed = t.layer, t.name.removesuffix(".lora_a").removesuffix(".lora_b")
        if layer is not None and layer < h.n_layer and changed not in on_cpu:
            weights[layer] += t.n_bytes
        elif changed == "output.weight" and changed not in on_cpu:
            output += t.n_bytes
        else:
            host += t.n_bytes
    return replace(need, weights=tuple(weights), output=output, host=host)
