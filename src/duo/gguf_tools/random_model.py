"""A model with random weights and the vocabulary of another: a draft that is never right, for tests and benchmarks."""

from __future__ import annotations

import os
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import quantize

from duo.errors import BadValueError, DuoError
from duo.gguf_tools.whole_file import not_complete, whole_file


def randomize(source: str | os.PathLike[str], out: str | os.PathLike[str], *, seed: int) -> None:
    """Copies a GGUF file; every matrix becomes Gaussian noise in Q8_0, every vector becomes ones.

    Raises DuoError: `source` is no complete GGUF file, `out` is the same file or cannot be written.
    """
    reader = whole_file(source)
    if os.path.exists(out) and Path(out).samefile(source):
        raise BadValueError(f"{os.fspath(out)}: is the source itself; write to another file")
    try:
        architecture = reader.fields["general.architecture"].contents()
    except (ValueError, LookupError, OverflowError, TypeError) as e:
        raise not_complete(source, e) from None
    try:
        _write(reader, architecture, out, seed)
    except OSError as e:
        raise DuoError(f"{os.fspath(out)}: could not be written ({e.strerror}); choose another place") from None


def _write(reader: gguf.GGUFReader, architecture: str, out: str | os.PathLike[str], seed: int) -> None:
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
