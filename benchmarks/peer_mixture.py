"""The mixture of mixture_words.py as ik_llama.cpp reads it: with biases of queries, keys and values, all zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.models import copy_begun, written

BIASED = tuple(f"attn_{part}.weight" for part in "qkv")


def biased(source: Path, out: Path) -> Path:
    """ik_llama.cpp demands of a glm4moe biases that llama.cpp does without. Sums with zeros are the same bits."""
    if out.exists():
        return out
    part = out.with_name(out.name + ".part")
    reader, writer = copy_begun(source, part)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        if tensor.name.endswith(BIASED):
            zeros = np.zeros(int(tensor.shape[1]), np.float32)
            writer.add_tensor(tensor.name.removesuffix("weight") + "bias", zeros)
    return written(writer, part, out)
