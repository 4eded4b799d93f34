"""Models with random weights of architectures that only libllama knows by heart.

libllama itself says which tensors such a header wants (llama_model_init_from_user, as its tests/test-llama-archs.cpp
does); the keys are those of that file, too.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType
from gguf_files import BOOL, F32, I32, STR, U32, Array, Value, header_of, tokens_of, write
from model_files import quantized

N_EMBD, N_FF, N_HEAD, N_LAYER = 256, 384, 2, 2

# How a target takes back a wrong guess: by snapshots of its state (llama_n_rs_seq), or from a state that was kept.
SNAPSHOTS = ("qwen35", "qwen35moe", "nemotron_h", "lfm2", "bailingmoe3", "kimi-k3")
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
CELLS = ("deepseek2", "gpt-oss", "gemma2", "llama4")
# Which layers attend is said by their heads.
_MIXED = {
    "jamba",
    "plamo2",
    "nemotron_h",
    "granitehybrid",
    "lfm2",
    "kimi-linear",
    "bailingmoe3",
    "kimi-k3",
    "glm5-next",
}
_WHOLE = re.compile("norm|conv|time_mix|_inp")  # in F32: no matrices, or too few rows for it to matter
_SLIDING = {"mimo2", "step35", "cohere2moe"}
# Attention over a compressed cache (MLA).
_LATENT = {"deepseek2", "deepseek32", "glm-dsa", "kimi-linear", "bailingmoe3", "kimi-k3", "glm5-next"}
_EXPERTS = {"qwen3next", "qwen35moe", "gpt-oss", "llama4", "minimax-01", "glm4moe", *_SLIDING, *_LATENT}
# Their MTP layers have an output matrix of their own, if the file has one; and one with the target's.
MTP = (
    "hy_v3", "glm4moe", "deepseek2", "deepseek32", "glm-dsa", "qwen35", "qwen35moe", "qwen3next", "mimo2", "step35",
    "cohere2moe",
)  # fmt: skip
MTP_TIED = ("bailingmoe3",)


def _keys(name: str, n_mtp: int = 0) -> dict[str, Value]:
    n_layer = {"nemotron_h": 3, "llama4": 4}.get(name, N_LAYER) + n_mtp
    n_embd, n_head, n_ff = (128, 1, 192) if name in _LATENT else (N_EMBD, N_HEAD, N_FF)
    heads: Value = (I32, [0 if i == 1 else n_head for i in range(n_layer)]) if name in _MIXED else (U32, n_head)
    keys: dict[str, Value] = {
        "context_length": (U32, 1024),
        "embedding_length": (U32, n_embd),
        "block_count": (U32, n_layer),
        "leading_dense_block_count": (U32, 1),
        "feed_forward_length": (I32, [0, 0, n_ff]) if name == "nemotron_h" else (U32, n_ff),
        "attention.head_count": (U32, n_head) if name == "glm5-next" else heads,
        "attention.head_count_kv": heads,
        "attention.layer_norm_epsilon": (F32, 1e-5),
        "attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "attention.group_norm_epsilon": (F32, 1e-5),
        "attention.group_norm_groups": (U32, 8),
        "attention.sliding_window": (U32, 32),
        "attention.q_lora_rank": (U32, 512),
        "attention.kv_lora_rank": (U32, 512),
        "full_attention_interval": (U32, 2),
        "rope.dimension_sections": (I32, [8, 12, 12, 0] if name == "bailingmoe3" else [n_embd // n_head // 4] * 4),
        "ssm.inner_size": (U32, 256 if name in ("qwen35", "qwen35moe", "qwen3next") else 2 * n_embd),
        "ssm.conv_kernel": (U32, 4),
        "ssm.state_size": (U32, 128),
        "ssm.time_step_rank": (U32, n_head),
        "ssm.group_count": (U32, 0 if name == "plamo2" else 2),
        "kda.head_dim": (U32, 128),
        "kda.safe_gate": (BOOL, True),
        "kda.gate_lower_bound": (F32, -5.0),
        "residual_scale": (F32, 3.5565588),
        "attn_res.block_size": (U32, 12),
        "activation.situ_beta": (F32, 4.0),
        "activation.situ_linear_beta": (F32, 25.0),
        "wkv.head_size": (U32, n_embd // n_head),
        "attention.decay_lora_rank": (U32, 64),
        "attention.iclr_lora_rank": (U32, 64),
        "attention.value_residual_mix_lora_rank": (U32, 32),
        "attention.gate_lora_rank": (U32, 64),
        "token_shift_count": (U32, 2),
        "shortconv.l_cache": (U32, 3),
        "interleave_moe_layer_step": (U32, 2),
    }
    if name in _LATENT:
        keys |= {
            "attention.key_length": (U32, 512 if name == "glm5-next" else 576),
            "attention.value_length": (U32, 512),
            "attention.key_length_mla": (U32, 192),
            "attention.value_length_mla": (U32, 128),
            "rope.dimension_count": (U32, 0 if name == "glm5-next" else 64),
        }
    if name == "glm5-next":
        keys |= {
            "hyper_connection.count": (U32, 4),
            "hyper_connection.sinkhorn_iterations": (U32, 2),
            "hyper_connection.epsilon": (F32, 1e-6),
            "attention.compress_ratios": (I32, [4] * n_layer),
            "attention.indexer.head_count": (U32, 64),
            "attention.indexer.key_length": (U32, 128),
            "attention.indexer.top_k": (U32, 131072),
            "attention.indexer.kpool": (U32, 4),
            "attention.indexer.kpool_select_tail": (BOOL, True),
        }
    if name == "bailingmoe3":
        keys |= {"swiglu_clamp_exp": (F32, 4.0), "swiglu_clamp_shexp": (F32, 5.0)}
    if name in _SLIDING:
        keys["attention.sliding_window_pattern"] = (BOOL, [i % 2 == 1 for i in range(n_layer)])
        keys["logit_scale"] = (F32, 1.0)
    if name in ("deepseek32", "glm-dsa"):
        keys |= {
            f"attention.indexer.{key}": (U32, n) for key, n in (("head_count", 1), ("key_length", 128), ("top_k", 8))
        }
    if name == "bailingmoe3":
        keys |= {"kda.safe_gate": (BOOL, True), "kda.gate_lower_bound": (F32, -5.0)}
    if name in (
        "glm4moe",
        "deepseek32",
        "glm-dsa",
        "bailingmoe3",
    ):  # without it the positions have one part, as in GLM-4.5
        del keys["rope.dimension_sections"]
    if n_mtp:
        keys["nextn_predict_layers"] = (U32, n_mtp)
    if name == "hy_v3":
        keys |= dict.fromkeys(
            ("attention.key_length", "attention.value_length", "rope.dimension_count"), (U32, n_embd // n_head)
        )
        keys["expert_feed_forward_length"] = (U32, n_ff)
    if name in _EXPERTS:
        keys |= {
            "expert_feed_forward_length": (U32, n_ff),
            "expert_shared_feed_forward_length": (U32, n_ff),
            "expert_count": (U32, 4),
            "expert_used_count": (U32, 2),
            "expert_shared_count": (U32, 1),
            "expert_gating_func": (U32, 2),
            "expert_weights_scale": (F32, 1.0),
            "expert_weights_norm": (BOOL, True),
        }
    return {f"{name}.{key}": value for key, value in keys.items()}


Weights = Callable[[str, tuple[int, ...], np.random.Generator], Array]


def tiny(
    name: str,
    source: Path,
    to: Path,
    *,
    seed: int = 1,
    apart: float = 0.0,
    n_mtp: int = 0,
    weights: Weights | None = None,
) -> Path:
    """A model of the architecture `name` with random weights and the vocabulary of `source`.

    apart: so much of the output matrix is other noise, so that a model drafts for one of the same seed and is
    sometimes wrong. n_mtp: MTP layers behind the others. weights: in place of the random ones.
    """
    header = {n: v for n, v in header_of(source).items() if n.startswith("tokenizer.")}
    header |= {"general.architecture": (STR, name), f"{name}.vocab_size": (U32, len(tokens_of(source)))}
    header |= _keys(name, n_mtp)
    write(to, header, [])
    tensors = []
    for tensor, shape in _wanted(to, fused=name == "mimo2"):
        rng = np.random.default_rng([seed, *tensor.encode()])
        data = (weights or random_weights)(tensor, shape, rng)
        if tensor in ("output.weight", "token_embd.weight") and apart > 0.0:
            data = data + apart * rng.normal(0, data.std(), shape)
        data = np.ascontiguousarray(data, np.float32)
        q8_0 = GGMLQuantizationType.Q8_0
        whole = len(shape) < 2 or shape[-1] % 32 != 0 or not tensor.endswith(".weight") or _WHOLE.search(tensor)
        tensors.append((tensor, data, None) if whole else (tensor, quantized(data, q8_0), q8_0))
    return write(to, header, tensors)


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
    return [(name, shape) for name, shape in found.items() if not name.endswith("scale")]  # those are optional


class _GgufInit(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))
