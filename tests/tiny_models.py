"""Models with random weights of architectures that only libllama knows by heart.

libllama itself says which tensors such a header wants (llama_model_init_from_user, as its tests/test-llama-archs.cpp
does); the keys are those of that file, too.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType
from gguf_files import STR, U32, Array, header_of, tokens_of, write
from model_files import quantized
from tiny_keys import N_LAYER, keys_of

# How a target takes back a wrong guess: by snapshots of its state (llama_n_rs_seq), or from a state that was kept.
SNAPSHOTS = (
    "qwen35", "qwen35moe", "qwen4exp", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3", "kimi-k3",
    "glm5-next",
)  # fmt: skip
KEPT = (
    "qwen3next",
    "mamba",
    "mamba2",
    "jamba",
    "falcon-h1",
    "granitehybrid",
    "plamo2",
    "kimi-linear",
    "minimax-01",
    "rwkv7",
)
# Snapshots too, of a compressed cache that no header tells the size of.
COMPRESSED = ("deepseek4",)
CELLS = ("deepseek2", "gpt-oss", "gemma2", "llama4")
# In F32: no matrices, or too few rows for it to matter. shortconv.in_proj and shortconv.out_proj are matrices.
_WHOLE = re.compile(r"norm|(?<!short)conv|time_mix|_inp|hc_|hyper|ape|indexer")
_OPTIONAL = re.compile(r"(?<!ffn_gate_inp\.)scale$")
# Their MTP layers have an output matrix of their own, if the file has one; and one with the target's.
MTP = (
    "hy_v3", "glm4moe", "deepseek2", "deepseek32", "glm-dsa", "qwen35", "qwen35moe", "qwen3next", "mimo2", "step35",
    "cohere2moe",
)  # fmt: skip
MTP_TIED = ("bailingmoe3",)


Weights = Callable[[str, tuple[int, ...], np.random.Generator], Array]


def tiny(
    name: str,
    source: Path,
    to: Path,
    *,
    seed: int = 1,
    apart: float = 0.0,
    n_mtp: int = 0,
    n_trunk: int = N_LAYER,
    weights: Weights | None = None,
    mixture: bool = False,
) -> Path:
    """A model of the architecture `name` with random weights and the vocabulary of `source`.

    apart: so much of the output matrix is other noise, so that a model drafts for one of the same seed and is
    sometimes wrong. n_mtp: MTP layers behind n_trunk others. weights: in place of the random ones.
    mixture: with experts, also where the architecture has models without.
    """
    shutil.copyfile(_written(name, source, seed, apart, n_mtp, n_trunk, weights or random_weights, mixture), to)
    return to


@cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="duo-tiny-models-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache  # many tests of a file want the same model
def _written(
    name: str, source: Path, seed: int, apart: float, n_mtp: int, n_trunk: int, weights: Weights, mixture: bool
) -> Path:
    to = _folder() / f"{len(list(_folder().iterdir()))}.gguf"
    header = {n: v for n, v in header_of(source).items() if n.startswith("tokenizer.")}
    header |= {"general.architecture": (STR, name), f"{name}.vocab_size": (U32, len(tokens_of(source)))}
    header |= keys_of(name, n_mtp, len(tokens_of(source)), n_trunk, mixture=mixture)
    write(to, header, [])
    tensors = []
    for tensor, shape in _wanted(to, fused=name == "mimo2"):
        other = apart if tensor in ("output.weight", "token_embd.weight") else 0.0
        tensors.append((tensor, *_tensor(tensor, shape, seed, other, weights)))
    return write(to, header, tensors)


@lru_cache(200)  # a draft is made right after its target, and most of its tensors are the same
def _tensor(
    tensor: str, shape: tuple[int, ...], seed: int, apart: float, weights: Weights
) -> tuple[Array, GGMLQuantizationType | None]:
    rng = np.random.default_rng([seed, *tensor.encode()])
    data = weights(tensor, shape, rng)
    if apart > 0.0:
        data = data + apart * rng.normal(0, data.std(), shape)
    data = np.ascontiguousarray(data, np.float32)
    q8_0 = GGMLQuantizationType.Q8_0
    whole = len(shape) < 2 or shape[-1] % 32 != 0 or not tensor.endswith(".weight") or _WHOLE.search(tensor)
    return (data, None) if whole else (quantized(data, q8_0), q8_0)


def random_weights(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if "norm" in name and name.endswith(".weight"):
        return rng.normal(1, 0.1, shape)
    if "ssm_a" in name:  # decay
        return -np.abs(rng.normal(0.5, 0.3, shape))
    if name == "token_embd.weight":
        return rng.normal(0, 0.2, shape)  # small: what follows is to depend on the layers
    return rng.normal(0, 2 / np.sqrt(shape[-1]) if len(shape) > 1 else 0.1, shape)


def _wanted(path: Path, *, fused: bool = False) -> list[tuple[str, tuple[int, ...]]]:
    """The tensors that libllama asks for, by a file that only has a header. fused: one matrix for q, k and v."""
    found: dict[str, tuple[int, ...]] = {}  # some are asked for twice

    def note(tensor: int, _: Any) -> None:
        ne = (ctypes.c_int64 * 4).from_address(tensor + 16)  # ggml.h: type, buffer, ne
        shape = list(reversed(list(ne)))
        while len(shape) > 1 and shape[0] == 1:
            shape.pop(0)
        found[name_of(tensor).decode()] = tuple(shape)

    lib: Any = llama_cpp.llama_cpp._lib
    name_of, read, release = lib.ggml_get_name, lib.gguf_init_from_file, lib.gguf_free
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.c_char_p, _GgufInit]
    release.restype, release.argtypes = None, [ctypes.c_void_p]
    make = lib.llama_model_init_from_user
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers, params.load_mtp = 0, True
    make.restype = ctypes.c_void_p
    make.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, type(params)]
    header = read(bytes(path), _GgufInit())
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(note)
    model = make(header, ctypes.cast(called, ctypes.c_void_p), None, params)
    release(header)
    assert model, f"libllama cannot make a model of {path}"
    lib.llama_model_free(ctypes.c_void_p(model))
    for name in [n for n in found if fused and n.endswith(".attn_q.weight")]:
        q, k, v = (found.pop(name.replace("attn_q", part)) for part in ("attn_q", "attn_k", "attn_v"))
        found[name.replace("attn_q", "attn_qkv")] = (q[0] + k[0] + v[0], q[1])
    return [(name, shape) for name, shape in found.items() if not _OPTIONAL.search(name)]


class _GgufInit(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))
