"""bfloat16 in NumPy, which has no such type: the upper half of a float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def to_bf16(x: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Bits of the nearest bfloat16 numbers. Infinity stays; NaN must not occur."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def from_bf16(bits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    numbers: npt.NDArray[np.float32] = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return numbers
