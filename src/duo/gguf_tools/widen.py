"""Widening: makes a GGUF of any size that writes exactly what a small one writes, to measure the speed of large models.

The added weights are only multiplied by activations that are zero. They cost as much memory, bandwidth and arithmetic
as real weights and change nothing, whatever their values are. They are noise because zeros take less time (a fifth,
measured).

- Width: noise is appended to every row. The residual is zero there, because token embeddings are padded with zeros and
  added rows are zero up to the width of the source. If D - d of D values are zero, their mean square is d/D of the mean
  square of the other d, so RMSNorm weights are multiplied by sqrt(d/D) and epsilon by d/D. Both are exact if D/d is
  4, 16, 64...
- Heads and feed-forward units: added ones are zero up to the width of the source, so their output is zero. The head
  size and the number of query heads per KV head stay, so RoPE and the sharing of KV heads stay the same.
- Layers: the norms of added layers are zero, so their input and their output are zero.
- Biases of added heads are zero (qwen2).
- A mixture of experts keeps its number of experts and its routing: widen_mixture.py.
- gemma3 multiplies embeddings by the square root of its width, so the residual is s = sqrt(D/d) times as large in the
  wide model. What is added to the residual passes a norm first, which makes it s times as large, too, because its other
  values are zero. So norms of the residual are divided by s, and the other norms and epsilon stay. This is exact but
  for the epsilon of the norms after attention and feed-forward, which should be d/D of it: a relative change of at most
  5e-7 where the mean square is 1. The norms of queries and keys are those of a head, which is not widened.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as GgmlType

from duo.errors import BadValueError, DoesNotFitError, DuoError
from duo.gguf_tools.whole_file import copy_field
from duo.gguf_tools.widen_mixture import small_model
from duo.gguf_tools.widen_plan import SmallModel, WidenedShape, WidenedTensor, choose_shape
from duo.support.atomic import replacing

# Types to which gguf-py can quantise without ruining the model.
TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
SAME = "same"  # each weight as in the source, also K-quants: its blocks are copied, and again for what is added

_CHUNK = 1 << 21  # weights handled at a time, so that memory use does not depend on the size of the output
_ALIGN = gguf.GGUF_DEFAULT_ALIGNMENT


@dataclass(frozen=True)
class WidenReport:
    """What was written."""

    path: Path
    bytes: int
    n_embd: int
    n_ff: int
    n_layer: int
    n_parameters: int


def widen(
    source: Path,
    out: Path,
    *,
    n_embd: int | None = None,
    n_ff: int | None = None,
    n_layer: int | None = None,
    size: float | None = None,
    type: str = "q8_0",
    progress: Callable[[str, int, int], None] | None = None,
) -> WidenReport:
    """Writes a larger model to `out` that writes what `source` writes.

    size: wanted bytes of the file; it sets the dimensions that are not given. Without it they stay those of the source.
    type: of the weights, one of TYPES; or SAME.
    progress: called with the tensor's name, the bytes written so far and all bytes.

    Raises DuoError: BadValueError for a request or a source that is not supported, DoesNotFitError if the disk is full.
    """
    if type.lower() not in (*TYPES, SAME):
        hint = "; for the others widen to f16 and run llama-quantize" if type.upper() in GgmlType.__members__ else ""
        raise BadValueError(f"type '{type}' cannot be written; choose one of {', '.join((*TYPES, SAME))}{hint}")
    if all(value is None for value in (n_embd, n_ff, n_layer, size)):
        raise BadValueError("no size was given; give a size or one of n_embd, n_ff, n_layer")
    if None not in (n_embd, n_ff, n_layer, size):
        raise BadValueError("a size and all of n_embd, n_ff, n_layer were given; leave one out")
    if os.path.exists(source) and os.path.exists(out) and out.samefile(source):
        raise BadValueError(f"{out}: is the source itself; write to another file")
    ggml_type = None if type.lower() == SAME else GgmlType[type.upper()]
    small = small_model(source)
    small.check(ggml_type, n_embd, n_ff, n_layer)
    if size is None:
        own = small.shape
        shape = WidenedShape(n_embd or own.n_embd, n_ff or own.n_ff, n_layer or own.n_layer)
    else:
        shape = choose_shape(small, ggml_type, size, {"n_embd": n_embd, "n_ff": n_ff, "n_layer": n_layer})
        small.check(ggml_type, shape.n_embd, shape.n_ff, shape.n_layer)
    plan = small.plan(shape, ggml_type)
    _check_room(out, sum(tensor.bytes for tensor in plan))
    try:
        with replacing(out) as part:
            _write_header(part, small, shape, plan, ggml_type)
            _write_weights(part, plan, ggml_type, progress)
    except OSError as error:
        raise DuoError(f"{out}: could not be written ({error.strerror}); choose another place") from error
    except NotImplementedError as error:
        raise BadValueError(f"{source}: gguf-py cannot read its weights ({error}); use an f16 or q8_0 file") from error
    n_parameters = sum(math.prod(tensor.dims) for tensor in plan)
    return WidenReport(out, out.stat().st_size, shape.n_embd, shape.n_ff, shape.n_layer, n_parameters)


def _check_room(out: Path, n_bytes: int) -> None:
    if not os.path.isdir(out.parent):
        raise BadValueError(f"{out}: no directory {out.parent}; create it first")
    if os.path.isdir(out):
        raise BadValueError(f"{out}: is a directory; name a file")
    if (free := shutil.disk_usage(out.parent).free) < n_bytes:
        raise DoesNotFitError(
            f"{out}: needs {n_bytes} bytes and {free} are free; free some space or ask for a smaller size"
        )


def _write_header(
    path: Path, source: SmallModel, shape: WidenedShape, plan: list[WidenedTensor], type: GgmlType | None
) -> None:
    """The source's metadata (tokenizer, template, context...) with what widening changes, and the tensors' places."""
    n_head, n_head_kv = source.heads(shape.n_embd)
    name = source.value("general.name", str, source.path.stem)
    arch = source.arch
    changed: dict[str, int | float | str] = {
        "general.name": f"{name} widened to n_embd {shape.n_embd}, n_ff {shape.n_ff}, {shape.n_layer} layers",
        "general.quantization_version": gguf.GGML_QUANT_VERSION,
        **{f"{arch}.{key}": value for key, value in source.keys(shape).items()},
        f"{arch}.attention.head_count": n_head,
        f"{arch}.attention.head_count_kv": n_head_kv,
    }
    if type is not None:
        kind = "ALL_F32" if type is GgmlType.F32 else f"MOSTLY_{type.name}"
        changed["general.file_type"] = int(gguf.LlamaFileType[kind])
    if not source.is_scaled:
        changed[f"{arch}.attention.layer_norm_rms_epsilon"] = source.eps * source.shape.n_embd / shape.n_embd
    if n_head * source.head_dim != shape.n_embd:
        changed |= {f"{arch}.attention.{what}_length": source.head_dim for what in ("key", "value")}
    dropped = {"general.architecture", "general.alignment", "general.size_label", "general.parameter_count", *changed}
    writer = gguf.GGUFWriter(path, arch)
    for key, field in source.reader.fields.items():
        if not key.startswith("GGUF.") and key not in dropped:
            copy_field(writer, field)
    kinds = {str: gguf.GGUFValueType.STRING, int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32}
    for key, value in changed.items():
        writer.add_key_value(key, value, kinds[value.__class__])
    for tensor in plan:
        writer.add_tensor_info(tensor.name, tensor.dims, np.dtype(np.float32), tensor.bytes, tensor.type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


def _write_weights(
    path: Path, plan: list[WidenedTensor], type: GgmlType | None, progress: Callable[[str, int, int], None] | None
) -> None:
    """Appends the weights, chunk by chunk."""
    values = np.random.default_rng(0).normal(0, 0.02, (_CHUNK // 1024, 1024)).astype(np.float32)
    noise = None if type is None else gguf.quantize(values, type).view(np.uint8).ravel()
    n_done, n_total = 0, sum(tensor.bytes for tensor in plan)
    with path.open("ab") as file:
        for tensor in plan:
            file.write(b"\0" * (-file.tell() % _ALIGN))
            for rows in _rows(tensor, noise if noise is not None and tensor.type == type else _own_noise(tensor)):
                file.write(rows.data)
                n_done += rows.nbytes
                if progress is not None:
                    progress(tensor.name, n_done, n_total)
        file.write(b"\0" * (-file.tell() % _ALIGN))


def _own_noise(tensor: WidenedTensor) -> npt.NDArray[np.uint8]:
    """Whole blocks of the source's tensor of this kind."""
    rows = np.atleast_2d(tensor.like.data)
    return np.ascontiguousarray(rows[: max(1, _CHUNK // rows.shape[-1])]).view(np.uint8).ravel()


def _rows(tensor: WidenedTensor, noise: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[np.uint8]]:
    """The stored bytes of a tensor, some rows at a time: the source's values, zeros below, noise to the right."""
    n_matrices, n_rows = (1, 1, *tensor.dims[:-1])[-2:]
    block, block_bytes = gguf.GGML_QUANT_SIZES[tensor.type]
    n_parts, part_bytes = tensor.n_parts, tensor.row_bytes // tensor.n_parts
    own_cols = 0 if tensor.source is None and not tensor.is_blank else int(tensor.like.shape[0]) // n_parts
    own_bytes = -(-own_cols // block) * block_bytes
    is_noisy = len(tensor.dims) > 1 and not tensor.name.endswith(("token_embd.weight", "embed_tokens.weight"))
    n_chunk = max(1, _CHUNK // tensor.dims[-1])
    for matrix in range(n_matrices):
        stored = _stored(tensor, matrix, n_matrices)
        for start in range(0, n_rows, n_chunk):
            # Zero bytes mean zeros in every ggml type.
            rows = np.zeros((min(n_chunk, n_rows - start), n_parts, part_bytes), np.uint8)
            if is_noisy and part_bytes > own_bytes:
                rows[..., own_bytes:] = np.resize(noise, (len(rows), n_parts, part_bytes - own_bytes))
            if tensor.source is not None and start < len(stored):
                own = _convert(stored[start : start + n_chunk], tensor.source.tensor_type, tensor)
                rows[: len(own), :, :own_bytes] = own.reshape(len(own), n_parts, -1)
            yield rows


def _stored(tensor: WidenedTensor, matrix: int, n_matrices: int) -> npt.NDArray[Any]:
    """The source's rows of one of the tensor's matrices."""
    if tensor.source is None:
        return np.empty((0, 0))
    data = np.atleast_2d(tensor.source.data)
    rows: npt.NDArray[Any] = data.reshape(n_matrices, -1, data.shape[-1])[matrix]
    return rows


def _convert(stored: npt.NDArray[Any], type: GgmlType, tensor: WidenedTensor) -> npt.NDArray[np.uint8]:
    if type == tensor.type and tensor.scale == 1:  # blocks are copied bit for bit
        return np.ascontiguousarray(stored).view(np.uint8)
    values = gguf.dequantize(np.ascontiguousarray(stored), type) * np.float32(tensor.scale)
    block = gguf.GGML_QUANT_SIZES[tensor.type][0]
    values = np.pad(values, ((0, 0), (0, -values.shape[1] % block)))
    return gguf.quantize(values, tensor.type).view(np.uint8)
