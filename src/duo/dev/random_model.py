"""A model with somebody's vocabulary and random weights: the draft that is never right, for tests and benchmarks."""

from __future__ import annotations

import os
import sys

import gguf
import numpy as np
from gguf.quants import quantize


def randomize(source: str | os.PathLike[str], out: str | os.PathLike[str], *, seed: int) -> None:
    """Copies a GGUF file with every matrix replaced by Gaussian noise in Q8_0, every vector by ones."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, architecture)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            is_array = field.types[0] == gguf.GGUFValueType.ARRAY
            writer.add_key_value(
                field.name, field.contents(), field.types[0], sub_type=field.types[-1] if is_array else None
            )
    rng = np.random.default_rng(seed)
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    for tensor in reader.tensors:
        shape = tuple(int(n) for n in reversed(tensor.shape))
        if len(shape) == 1:
            writer.add_tensor(tensor.name, np.ones(shape, np.float32))
        else:
            weights = rng.normal(0, 0.05, shape).astype(np.float32)
            writer.add_tensor(tensor.name, quantize(weights, q8_0), raw_dtype=q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m duo.dev.random_model SOURCE.gguf OUT.gguf")
    randomize(sys.argv[1], sys.argv[2], seed=7)
