"""Small models with random weights, one for each way in which a graph multiplies by them, and passes over them."""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from gguf_files import F32, STR, U32, Array, Value, header_of, write

from duo import _core
from duo._libs import library_dir
from duo.benchmark import doctor
from duo.models.demo import demo_pair

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma", "mixtral")
N_PRODUCTS = 15  # by quantized weights, in a model of two layers
# Weight types that duo has kernels for.
TYPES = (
    "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq4_xs",
    "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s", "iq1_m", "tq1_0", "tq2_0", "bf16", "f16", "f32",
)  # fmt: skip
TOKENS: list[int] = np.random.default_rng(0).integers(5, 4096, 800).tolist()
WIDTHS = (*range(1, 17), 33, 63, 64)
N_EXPERT = 4
N_LORA = 256


@dataclass(frozen=True)
class Shape:
    n_embd: int = 256
    n_ff: int = 512
    n_vocab: int = 4096  # those of the demo pair, and made-up ones above
    n_layer: int = 2
    n_head: int = 4
    n_head_kv: int = 2


# What a program in another process begins with.
CHILD = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
from model_files import options, run
from duo import _core
"""


@cache
def _quantizer() -> Any:
    name = {"darwin": "libggml-base.dylib", "win32": "ggml-base.dll"}.get(sys.platform, "libggml-base.so")
    f = ctypes.CDLL(str(library_dir() / name)).ggml_quantize_chunk
    f.restype = ctypes.c_size_t
    pointer, i64 = ctypes.c_void_p, ctypes.c_int64
    f.argtypes = [ctypes.c_int, pointer, pointer, i64, i64, i64, pointer]
    return f


_LARGE: dict[tuple[bytes, int], Array] = {}  # models of several architectures have the same embeddings


CODEBOOKS = ("iq1", "iq2", "iq3")
SLOW = (*CODEBOOKS, "iq4")  # to quantize
N_ROWS_SLOW = 256
LARGE_SIZE = 5_000_000  # of matrices whose numbers matter less than their bytes: the first rows are repeated


def quantized(x: Array, kind: GGMLQuantizationType) -> Array:
    """The rows of x as ggml's own quantizer writes them. Where it is slow, the first rows are repeated."""
    x = np.ascontiguousarray(x, np.float32)
    n_rows = x.size // x.shape[-1]
    if n_rows > N_ROWS_SLOW and (kind.name.lower().startswith(SLOW) or x.size > LARGE_SIZE):
        some = quantized(x.reshape(n_rows, -1)[:N_ROWS_SLOW], kind)
        return np.resize(some, (n_rows, some.shape[-1])).reshape(*x.shape[:-1], -1)
    if x.size < 1 << 20:
        return _quantized(x, kind)
    key = (hashlib.blake2b(x.data).digest(), int(kind))
    if key not in _LARGE:
        _LARGE[key] = _quantized(x, kind)
    return _LARGE[key]


def _quantized(x: Array, kind: GGMLQuantizationType) -> Array:
    n_block, n_bytes = GGML_QUANT_SIZES[kind]
    out = np.empty((*x.shape[:-1], x.shape[-1] // n_block * n_bytes), np.uint8)
    n_rows = x.size // x.shape[-1]
    importance = np.ones(x.shape[-1], np.float32)  # some types have no quantizer without it
    given = importance.ctypes.data if kind.name.startswith(("IQ1", "IQ2")) else None
    assert _quantizer()(kind, x.ctypes.data, out.ctypes.data, 0, n_rows, x.shape[-1], given) == out.nbytes
    return out


def random_codes(name: str, like: Array, kind: GGMLQuantizationType) -> Array:
    """Weights of a type with a codebook, as large as those of an array on average. Any bits are valid codes, and ggml
    takes seconds to learn to find the best ones."""
    n_block, n_bytes = GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(list(name.encode()))
    blocks = rng.integers(0, 256, (like.size // n_block, n_bytes), np.uint8)

    def scale(x: float) -> None:
        bits = int(np.float16(x).view(np.uint16))
        if kind == GGMLQuantizationType.IQ1_M:  # its half float lies in the upper bits of the four last words
            words = blocks[:, -8:].view(np.uint16)
            words[:] = words & 0xFFF | np.array([bits << 12 - 4 * i & 0xF000 for i in range(4)], np.uint16)
        else:
            blocks[:, :2] = bits & 0xFF, bits >> 8

    scale(1.0)
    scale(float(like.std() / dequantize(blocks[:64], kind).std()))
    return blocks.reshape(*like.shape[:-1], -1)


def _header(architecture: str, s: Shape) -> dict[str, Value]:
    header = {n: v for n, v in header_of(demo_pair()[0]).items() if n.startswith("tokenizer.")}
    more = range(4096, s.n_vocab)
    for key, extra in (("tokens", [f"<{i}>" for i in more]), ("token_type", [1 for _ in more])):
        kind, values = header[f"tokenizer.ggml.{key}"]
        header[f"tokenizer.ggml.{key}"] = (kind, values + extra)
    name = "llama" if architecture == "mixtral" else architecture
    header |= {
        "general.architecture": (STR, name),
        f"{name}.context_length": (U32, 2048),
        f"{name}.embedding_length": (U32, s.n_embd),
        f"{name}.block_count": (U32, s.n_layer),
        f"{name}.feed_forward_length": (U32, s.n_ff),
        f"{name}.attention.head_count": (U32, s.n_head),
        f"{name}.attention.head_count_kv": (U32, s.n_head_kv),
        f"{name}.attention.layer_norm_rms_epsilon": (F32, 1e-6),
    }
    if architecture == "minicpm3":
        keys = {"q_lora_rank": N_LORA, "kv_lora_rank": N_LORA, "key_length": 96, "value_length": 64}
        header |= {f"{name}.attention.{key}": (U32, n) for key, n in keys.items()}
        header |= {f"{name}.rope.dimension_count": (U32, 32), f"{name}.attention.head_count_kv": (U32, s.n_head)}
    if architecture == "mixtral":
        header |= {f"{name}.expert_count": (U32, N_EXPERT), f"{name}.expert_used_count": (U32, 2)}
    return header


@lru_cache(2)  # the types of an architecture come one after the other
def _weights(architecture: str, s: Shape) -> list[tuple[str, Array]]:
    return list(_drawn(architecture, s, np.random.default_rng(5)))


def _drawn(architecture: str, s: Shape, rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    n_head_dim = s.n_embd // s.n_head
    n_kv = s.n_head_kv * n_head_dim

    def matrix(*shape: int) -> Array:
        some = (N_ROWS_SLOW, shape[-1]) if np.prod(shape) > LARGE_SIZE else shape
        x: Array = rng.standard_normal(some, np.float32) / np.float32(shape[-1] ** 0.5)
        return x if some == shape else np.resize(x, shape)

    embeddings = rng.standard_normal((s.n_vocab, s.n_embd), np.float32)
    if architecture == "mixtral":  # each token has its experts, by far: no rounding changes the choice
        embeddings[:, :2] = rng.choice((-1, 1), (s.n_vocab, 2)) * (8, 4)
    yield "token_embd.weight", embeddings
    yield "output_norm.weight", np.ones(s.n_embd, np.float32)
    if architecture != "gemma":
        yield "output.weight", matrix(s.n_vocab, s.n_embd)
    experts = (N_EXPERT,) if architecture == "mixtral" else ()
    exps = "_exps" if experts else ""
    for i in range(s.n_layer):
        layer: dict[str, Array] = {
            "attn_norm.weight": np.ones(s.n_embd, np.float32),
            "attn_q.weight": matrix(s.n_embd, s.n_embd),
            "attn_k.weight": matrix(n_kv, s.n_embd),
            "attn_v.weight": matrix(n_kv, s.n_embd),
            "attn_output.weight": matrix(s.n_embd, s.n_embd),
            "ffn_norm.weight": np.ones(s.n_embd, np.float32),
            f"ffn_gate{exps}.weight": matrix(*experts, s.n_ff, s.n_embd),
            f"ffn_up{exps}.weight": matrix(*experts, s.n_ff, s.n_embd),
            f"ffn_down{exps}.weight": matrix(*experts, s.n_embd, s.n_ff),
        }
        if architecture == "qwen2":
            for kind, n in (("q", s.n_embd), ("k", n_kv), ("v", n_kv)):
                layer[f"attn_{kind}.bias"] = rng.standard_normal(n, np.float32)
        if architecture == "qwen3":
            layer |= {f"attn_{kind}_norm.weight": np.ones(n_head_dim, np.float32) for kind in "qk"}
        if architecture == "minicpm3":  # heads of 64 and 32 turned columns; values of 64
            del layer["attn_q.weight"], layer["attn_k.weight"], layer["attn_v.weight"]
            layer |= {f"attn_{kind}_a_norm.weight": np.ones(N_LORA, np.float32) for kind in ("q", "kv")}
            layer["attn_q_a.weight"] = matrix(N_LORA, s.n_embd)
            layer["attn_q_b.weight"] = matrix(s.n_head * 96, N_LORA)
            layer["attn_kv_a_mqa.weight"] = matrix(N_LORA + 32, s.n_embd)
            layer["attn_kv_b.weight"] = matrix(s.n_head * 128, N_LORA)
        if architecture == "mixtral":
            layer["ffn_gate_inp.weight"] = router = matrix(N_EXPERT, s.n_embd) / 8
            router[:, :2] = np.array(((1, 1), (1, -1), (-1, 1), (-1, -1))) / 8
        yield from ((f"blk.{i}.{name}", data) for name, data in layer.items())


def random_model(to: Path, architecture: str, type_of: str | Callable[[str], str], shape: Shape | None = None) -> Path:
    """Writes a model whose matrices have the ggml type `type_of`, or what it says for a tensor's name."""
    shape = shape or Shape()

    def tensor(name: str, data: Array) -> tuple[str, Array, Any]:
        kind = type_of(name) if callable(type_of) else "f32" if "ffn_gate_inp" in name else type_of
        if data.ndim == 1 or kind == "f32":
            return name, data, None
        if kind.startswith(CODEBOOKS) and architecture != "gemma":  # its embeddings are its output matrix, too
            if name == "token_embd.weight":
                kind = "q8_0"
            else:
                raw_type = GGMLQuantizationType[kind.upper()]
                small = data / 4 if architecture == "mixtral" else data  # no rounding changes the choice of experts
                return name, random_codes(name, small, raw_type), raw_type
        raw_type = GGMLQuantizationType[kind.upper()]
        return name, quantized(data, raw_type), raw_type

    return write(to, _header(architecture, shape), [tensor(n, d) for n, d in _weights(architecture, shape)])


def options(
    path: str | Path, types: tuple[str, ...] = TYPES, n_threads: int = 1, n_ctx: int = 256
) -> _core.ModelOptions:
    """Weights of these types are duo's, on the CPU alone."""
    return doctor.options(str(path), n_threads, types, n_ctx)


def run(p: _core.Probe, *widths: int) -> Array:
    """Logits of the first sum(widths) tokens, evaluated in passes of these widths."""
    rows, pos = [], 0
    for n in widths:
        p.decode(TOKENS[pos : pos + n], pos)
        rows.append(p.logits())
        pos += n
    return np.concatenate(rows)


def assert_same_bits(
    path: Path, n_context: int = 40, widths: tuple[int, ...] = WIDTHS, threads: tuple[int, ...] = (1, 2, 3)
) -> None:
    expected = None
    for n_threads in threads:
        p = _core.Probe(options(path, n_threads=n_threads, n_ctx=800))
        assert p.same_bits
        p.decode(TOKENS[:n_context], 0)
        if expected is None:  # the reference: one by one, by one thread
            ones = []
            for i in range(n_context, n_context + max(widths)):
                p.decode([TOKENS[i]], i)
                ones.append(p.logits()[0])
            expected = np.stack(ones)
        for n in widths:
            p.decode(TOKENS[n_context : n_context + n], n_context)
            same = (p.logits() == expected[:n]).all(1)
            assert same.all(), f"{n_threads} threads, {n} wide: rows {np.flatnonzero(~same)} differ"
