"""Makes model files for the kernel benchmarks: widened, randomised, in every weight type."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

import duo
from duo import _core
from duo.benchmark import doctor
from duo.gguf_tools.whole_file import copy_field
from duo.gguf_tools.widen import widen

# The names of llama-quantize. Only the mixtures ("_M") keep libllama's choice of a type for each matrix; in the others
# all matrices have the same type.
FILE_TYPES = {
    "f32": llama_cpp.LLAMA_FTYPE_ALL_F32,
    "f16": llama_cpp.LLAMA_FTYPE_MOSTLY_F16,
    "bf16": llama_cpp.LLAMA_FTYPE_MOSTLY_BF16,
    "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1,
    "q5_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q5_0,
    "q5_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q5_1,
    "iq4_nl": llama_cpp.LLAMA_FTYPE_MOSTLY_IQ4_NL,
    "mxfp4": llama_cpp.LLAMA_FTYPE_MOSTLY_MXFP4_MOE,
    "q2_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q2_K,
    "q3_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q3_K_S,
    "q3_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q3_K_M,
    "iq4_xs": llama_cpp.LLAMA_FTYPE_MOSTLY_IQ4_XS,
    "tq1_0": llama_cpp.LLAMA_FTYPE_MOSTLY_TQ1_0,
    "tq2_0": llama_cpp.LLAMA_FTYPE_MOSTLY_TQ2_0,
    "q4_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_S,
    "q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "q5_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q5_K_S,
    "q5_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q5_K_M,
    "q6_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K,
}
# Their quantizers take minutes and want an importance matrix, so these files have random blocks instead.
CODEBOOKS = ("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s", "iq1_m")
TYPES = (*FILE_TYPES, *CODEBOOKS)


@llama_cpp.llama_log_callback
def _silent(_level: int, _text: bytes, _data: ctypes.c_void_p) -> None:
    pass


def quiet() -> None:
    """Redirects libllama's log, which `import llama_cpp` has sent to stderr."""
    llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))


def widened(source: Path, work: Path, shape: tuple[int, int, int], type: str) -> Path:
    """Pads `source` to (n_embd, n_ff, n_layer), as f16 or f32. A file from an earlier run is reused."""
    out = work / f"{source.stem}-{'x'.join(map(str, shape))}-{type}.gguf"
    if not out.exists():
        work.mkdir(parents=True, exist_ok=True)
        widen(source, out, n_embd=shape[0], n_ff=shape[1], n_layer=shape[2], type=type)
    return out


def quantized(source: Path, out: Path, type: str) -> Path:
    """Converts `source` to another weight type."""
    if out.exists():
        return out
    if type in CODEBOOKS:
        return _random_blocks(source, out, gguf.GGMLQuantizationType[type.upper()])
    quiet()
    params = llama_cpp.llama_model_quantize_default_params()
    params.nthread = len(os.sched_getaffinity(0))
    params.ftype = FILE_TYPES[type]
    params.allow_requantize = True  # back to f32
    params.pure = not type.endswith("_M")
    part = out.with_name(out.name + ".part")
    if llama_cpp.llama_model_quantize(str(source).encode(), str(part).encode(), ctypes.byref(params)) != 0:
        part.unlink(missing_ok=True)
        raise SystemExit(f"{source} could not be written as {type}")
    part.replace(out)
    return out


def written(writer: gguf.GGUFWriter, part: Path, out: Path) -> Path:
    """Ends a file that is written to `part`, and gives it its name."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(out)
    return out


def copy_begun(source: Path, part: Path) -> tuple[gguf.GGUFReader, gguf.GGUFWriter]:
    """A reader of `source`, and a writer of `part` that has its header."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(part, str(reader.fields["general.architecture"].contents()))
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            copy_field(writer, field)
    return reader, writer


def _random_blocks(source: Path, out: Path, type: gguf.GGMLQuantizationType) -> Path:
    """Writes `source` with other matrices: random ones of this type, all of whose blocks have one scale."""
    part = out.with_name(out.name + ".part")
    reader, writer = copy_begun(source, part)
    rng = np.random.default_rng(7)
    n_block, n_bytes = gguf.GGML_QUANT_SIZES[type]
    for tensor in reader.tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.F32:  # norms, routers
            writer.add_tensor(tensor.name, tensor.data)
            continue
        rows = rng.integers(0, 256, (*tensor.data.shape[:-1], int(tensor.shape[0]) // n_block, n_bytes), np.uint8)
        scale = int(np.array([1e-3], np.float16).view(np.uint16)[0])
        if type == gguf.GGMLQuantizationType.IQ1_M:  # in four parts
            for i in range(4):
                rows[..., 49 + 2 * i] = rows[..., 49 + 2 * i] & 15 | (scale >> 4 * i & 15) << 4
        else:
            rows[..., :2] = scale & 255, scale >> 8
        writer.add_tensor(tensor.name, rows.reshape(*tensor.data.shape[:-1], -1), raw_dtype=type)
    return written(writer, part, out)


def randomized(source: Path, out: Path, seed: int = 7) -> Path:
    """Makes an f32 file in which Gaussian noise replaces all matrices, and ones replace all norms."""
    if out.exists():
        return out
    part = out.with_name(out.name + ".part")
    part.write_bytes(source.read_bytes())
    rng = np.random.default_rng(seed)
    for tensor in gguf.GGUFReader(part, "r+").tensors:
        shape = tensor.data.shape
        tensor.data[:] = 1 if len(shape) == 1 else rng.normal(0, 0.05, shape)
    part.replace(out)
    return out


def dimensions(path: Path) -> tuple[int, int, int]:
    fields = gguf.GGUFReader(path).fields
    keys = ("embedding_length", "feed_forward_length", "block_count")
    n_embd, n_ff, n_layer = (int(fields[f"llama.{key}"].contents()) for key in keys)
    return n_embd, n_ff, n_layer


def bytes_of_pass(path: Path) -> int:
    """Bytes of the weights that a pass reads in full: all except embeddings that are not also the output."""
    sizes = {tensor.name: int(tensor.n_bytes) for tensor in gguf.GGUFReader(path).tensors}
    return sum(sizes.values()) - (sizes["token_embd.weight"] if "output.weight" in sizes else 0)


def probe(path: Path, n_threads: int, n_ctx: int, ours: bool) -> _core.Probe:
    """Loads the model with duo's kernels for every supported type, or with stock kernels."""
    o = doctor.options(str(path), n_threads, _core.kernel_types() if ours else [], n_ctx)
    p = _core.Probe(o)
    if ours and p.n_duo_products == 0:
        raise SystemExit(f"duo's kernels support none of the weights of {path}")
    return p


def versions() -> dict[str, str]:
    """Describes what was measured, for the result files."""
    name, why = _core.kernels()
    return {
        "duo": duo.__version__,
        "llama_cpp": _core.ggml_commit(),
        "kernels": name or f"none: {why}",
        "DUO_CPU_ISA": os.environ.get("DUO_CPU_ISA", ""),
        "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", ""),
    }
