"""Writes what was trained as GGUF files that llama.cpp reads, with a card that says how it was made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as GgmlType
from gguf import GGUFValueType as Kind

from duo.errors import DuoError
from duo.support.atomic import replacing
from duo.train.target_file import ModelFile

CARD = "duo.training.card"  # the header's key for the card, which is JSON
ROUTER = "ffn_gate_inp.weight"
Values = Mapping[str, int | float | bool | str | list[int]]
Tensors = Mapping[str, npt.NDArray[Any]]


def write_model(
    out: Path, architecture: str, name: str, values: Values, tensors: Tensors, vocabulary: ModelFile, weight_type: str,
    card: Mapping[str, Any],
) -> int:  # fmt: skip
    """Writes a model with the vocabulary of another. Returns the file's bytes. Raises DuoError.

    values: header keys of the architecture, without its name. tensors: rows first; matrices get weight_type, or f16
    where rows do not fill its blocks; vectors and routers stay f32, and integers as they are.
    """
    try:
        with replacing(out) as part:
            writer = gguf.GGUFWriter(part, architecture)
            writer.add_string("general.name", name)
            writer.add_string(CARD, json.dumps(card))
            writer.add_uint32("general.file_type", int(gguf.LlamaFileType[_file_type(weight_type)]))
            writer.add_uint32("general.quantization_version", gguf.GGML_QUANT_VERSION)
            for key, value in values.items():
                if isinstance(value, list):
                    writer.add_key_value(f"{architecture}.{key}", value, Kind.ARRAY, sub_type=Kind.INT32)
                else:
                    writer.add_key_value(f"{architecture}.{key}", value, _kind(value))
            for key, content, kind, sub_kind in vocabulary.tokenizer():
                writer.add_key_value(key, content, kind, sub_type=sub_kind)
            for tensor, data in tensors.items():
                is_router = tensor.endswith(ROUTER)
                stored, kind_stored = _stored(data, GgmlType["F32" if is_router else weight_type.upper()])
                writer.add_tensor(tensor, stored, raw_dtype=kind_stored)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
        return out.stat().st_size
    except OSError as e:
        raise DuoError(f"{out}: could not be written ({e.strerror or e}); choose another place") from None


def read_card(path: Path) -> dict[str, Any] | None:
    """The card of a file that `write_model` wrote; None: it has none."""
    card = ModelFile(path).header.values.get(CARD)
    return json.loads(card) if isinstance(card, str) else None


def _file_type(weight_type: str) -> str:
    return "ALL_F32" if weight_type == "f32" else f"MOSTLY_{weight_type.upper()}"


def _kind(value: int | float | bool | str) -> Kind:
    return {bool: Kind.BOOL, int: Kind.UINT32, float: Kind.FLOAT32, str: Kind.STRING}[type(value)]


def _stored(data: npt.NDArray[Any], ggml_type: GgmlType) -> tuple[npt.NDArray[Any], GgmlType | None]:
    if data.dtype == np.int64:
        return data, None
    if data.ndim == 1 or ggml_type is GgmlType.F32:
        return data.astype(np.float32), None
    if data.shape[-1] % gguf.GGML_QUANT_SIZES[ggml_type][0]:
        ggml_type = GgmlType.F16
    return gguf.quantize(data.astype(np.float32), ggml_type), ggml_type
