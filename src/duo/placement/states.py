"""Bytes of the states that a recurrent or hybrid model keeps, from its header (llama-hparams.cpp: n_embd_r, _s)."""

from __future__ import annotations

from typing import Literal

from duo.models.header import Header
from duo.support.wording import gigabytes

# Architectures that keep snapshots (llama-arch.cpp: llm_arch_supports_rs_rollback).
SNAPSHOTS = {"kimi-k3", "qwen35", "qwen35moe", "qwen4exp", "glm5-next", "nemotron_h", "nemotron_h_moe"} | {
    "lfm2", "lfm2moe", "bailingmoe3",
}  # fmt: skip
COMPRESSED = "deepseek4"  # keeps states, too: of what compresses its keys (duo.placement.cache)
N_SNAPSHOTS = 8  # csrc/llama/context_shape.cpp: n_snapshots_most
N_MARKS = 4  # the default of --ctx-checkpoints
N_BRANCHES = 16  # of a draft (csrc/llama/context_shape.cpp: n_branch_state)
_FLOAT = 4  # bytes: states are not quantised


def way_back(h: Header) -> Literal["cells", "snapshots", "copy"]:
    """How a target takes back a wrong guess (csrc/model/token_model.h: undo_kind)."""
    return "cells" if not h.state_layers else "snapshots" if h.architecture in SNAPSHOTS else "copy"


def keeps_states(h: Header) -> bool:
    """As the engine sees it (llama_model_is_recurrent, llama_model_is_hybrid)."""
    return bool(h.state_layers) or h.architecture == COMPRESSED


def _has_snapshots(h: Header, *, guesses: bool) -> bool:
    return guesses and (way_back(h) == "snapshots" or h.architecture == COMPRESSED)


def n_states(h: Header, *, draft: bool, guesses: bool, n_parallel: int) -> int:
    """States that a context makes room for. guesses: whether a draft model guesses for it, here or on another
    machine."""
    if draft:
        return n_parallel if h.architecture == "plamo2" else max(N_BRANCHES, 4 * n_parallel)
    return n_parallel * (1 + N_SNAPSHOTS if _has_snapshots(h, guesses=guesses) else 2)


def n_sequences(h: Header, *, draft: bool, guesses: bool, n_parallel: int) -> int:
    """Sequences of the context of a model that keeps states."""
    if draft:
        return n_states(h, draft=True, guesses=guesses, n_parallel=n_parallel)
    return n_parallel * (1 if _has_snapshots(h, guesses=guesses) else 2)


def state_bytes(h: Header) -> tuple[int, ...]:
    """Bytes of one state, by layer; 0: the layer keeps none."""
    layers = h.state_layers
    one = _FLOAT * sum(_numbers(h)) if layers else 0
    hashed, more = _hashed(h)
    return tuple((one if i in layers else 0) + (_FLOAT * more if i in hashed else 0) for i in range(h.n_layer))


def _hashed(h: Header) -> tuple[list[int], int]:
    """Layers with embeddings of hashed n-grams (Qwen4-Exp), and the numbers of their convolution."""
    layers = h.values.get("qwen4exp.ple.layers", [])
    names = ("ple.conv_kernel", "ple.ngram_size", "hyper_connection.count")
    kernel, n_gram, n_streams = (h.values.get(f"qwen4exp.{name}", 0) for name in names)
    numbers = [x for x in (kernel, n_gram, n_streams) if isinstance(x, int)]
    if not isinstance(layers, list) or len(numbers) < len(names):
        return [], 0
    return layers, max(0, numbers[0] - 1) * numbers[1] * numbers[2] * h.n_embd


def _numbers(h: Header) -> tuple[int, int]:
    """Numbers of a layer's convolution, and of its state."""

    def key(name: str) -> int:
        value = h.values.get(f"{h.architecture}.{name}", 0)
        value = max(value, default=0) if isinstance(value, list) else value
        return value if isinstance(value, int) else 0

    def has(name: str) -> bool:
        return any(name in t.name for t in h.tensors)

    kernel, inner, state = key("ssm.conv_kernel"), key("ssm.inner_size"), key("ssm.state_size")
    if has(".time_mix"):
        return (key("token_shift_count") or 2) * h.n_embd, h.n_embd * key("wkv.head_size")
    if has(".ssm_f_a."):  # Kimi's delta attention
        width = key("kda.head_dim")
        return 3 * ((kernel or 4) - 1) * h.n_head * width, width * width * h.n_head
    if h.architecture == "minimax-01":
        return 0, h.key_length * h.key_length * h.n_head
    if has(".shortconv."):
        return h.n_embd * (key("shortconv.l_cache") - 1), 0
    groups = 0 if h.architecture in ("mamba", "jamba") else key("ssm.group_count")
    return max(0, kernel - 1) * (inner + 2 * groups * state), state * inner


def sentence(h: Header) -> str:
    """How a target of this architecture takes back wrong guesses, and what that costs; empty: at no cost."""
    way = way_back(h)
    if way == "cells":
        return ""
    size = gigabytes(sum(state_bytes(h)))
    if way == "snapshots":
        return (
            f"the target keeps a recurrent state ({size}): a wrong guess costs nothing, because snapshots are kept; "
            f"at most {N_SNAPSHOTS} guesses are in a pass"
        )
    return (
        f"the target keeps a recurrent state ({size}) without snapshots: after a wrong guess the next pass evaluates "
        "again what was right; with several texts at once nothing is guessed"
    )
