"""Reads option texts that name devices, CPUs, or memory for tensors."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from duo.errors import BadValueError


def device_names(value: str | Sequence[str] | None) -> list[str]:
    """The names in "CUDA0,CUDA1" or in a list; [] means the default. Raises BadValueError."""
    names = value.split(",") if isinstance(value, str) else list(value or [])
    for n in names:
        if not n.isprintable():
            raise BadValueError(f"{n!r} is not the name of a device; see duo --list-devices")
    return [n.strip() for n in names if n.strip()]


def tensor_overrides(value: str | Sequence[str] | None, flag: str) -> list[tuple[str, str]]:
    """(pattern, memory) for each part of "ffn_up=CPU,attn=CUDA0" or of a list. Raises BadValueError."""
    if value is None:
        return []
    pairs = []
    for one in ",".join([value] if isinstance(value, str) else value).split(","):
        pattern, _, memory = one.partition("=")
        if not pattern or not memory or not one.isprintable():
            raise BadValueError(f"{one!r} ({flag}) is not PATTERN=MEMORY; write it as ffn_up=CPU")
        pairs.append((pattern, memory))
    return pairs


def cpu_list(mask: str | None, span: str | None, flags: tuple[str, str]) -> list[int]:
    """CPU numbers from a hexadecimal mask and a LO-HI range (either end may be missing), as llama.cpp reads them.

    flags: those of the two options. Raises BadValueError if the text is wrong or names no CPU.
    """
    cpus: set[int] = set()
    if mask is not None:
        if not re.fullmatch(r"(0x)?[0-9a-f]{1,256}", mask, re.IGNORECASE):
            raise BadValueError(f"the CPU mask {mask!r} ({flags[0]}) is not hexadecimal; give for example 0x3")
        bits = int(mask, 16)
        if bits == 0:
            raise BadValueError(f"the CPU mask {mask!r} ({flags[0]}) names no CPU; give for example 0x3")
        cpus |= {i for i in range(bits.bit_length()) if bits >> i & 1}
    if span is not None:
        match = re.fullmatch(r"([0-9]{0,4})-([0-9]{0,4})", span)
        first, last = (int(match[1] or 0), int(match[2] or (os.cpu_count() or 1) - 1)) if match else (1, 0)
        if first > last:
            raise BadValueError(f"the CPU range {span!r} ({flags[1]}) is not LO-HI; give for example 0-7")
        cpus |= set(range(first, last + 1))
    return sorted(cpus)
