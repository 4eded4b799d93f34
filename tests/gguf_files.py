"""GGUF files made from the demo pair's: with other header values, other tokens, other weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter

Value = tuple[GGUFValueType, Any]  # type and value of a header key; an array's type is that of its elements
U32, I32, F32 = GGUFValueType.UINT32, GGUFValueType.INT32, GGUFValueType.FLOAT32
U64, STR, BOOL = GGUFValueType.UINT64, GGUFValueType.STRING, GGUFValueType.BOOL


def rewrite(
    source: Path,
    to: Path,
    *,
    put: Mapping[str, Value] | None = None,
    drop: Collection[str] = (),
    weights: Callable[[str, np.ndarray[Any, Any]], np.ndarray[Any, Any] | None] | None = None,
) -> Path:
    """Copies a model; `put` sets header keys, `drop` leaves keys out, `weights` returns a tensor's bytes or None to drop it."""
    reader = GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(to, architecture)
    values: dict[str, Value] = {}
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            values[name] = (field.types[-1], field.contents())
    values |= put or {}
    # The writer has put the architecture itself.
    for name, (kind, value) in values.items():
        if name == "general.architecture":
            writer.kv_data[0].pop(name)
        if name in drop:
            continue
        if isinstance(value, list):
            writer.add_key_value(name, value, GGUFValueType.ARRAY, sub_type=kind)
        else:
            writer.add_key_value(name, value, kind)
    for tensor in reader.tensors:
        data = np.array(tensor.data)
        changed = data if weights is None else weights(tensor.name, data)
        if changed is not None:
            writer.add_tensor(tensor.name, changed, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to


def tokens_of(path: Path) -> list[str]:
    """The texts of a model's vocabulary, as the file spells them."""
    texts: list[str] = GGUFReader(path).fields["tokenizer.ggml.tokens"].contents()
    return texts
