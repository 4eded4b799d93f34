"""Models with MTP layers that guess right, or at random; and their two parts as files of their own.

The one that guesses right says t, f(t), f(f(t)), ... for a permutation f of the tokens. Its layers before the MTP layer
add next to nothing, so its last state is the embedding of the token. The MTP layer looks at the state before its token
only, never at the token itself: it moves that state to the other half of its columns, and its output matrix holds
f(f(t)) there. So it is right if it is given the state before the token, and wrong with any other one.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from gguf_files import U32, Array, header_of, rewrite
from tiny_keys import N_LAYER
from tiny_models import random_weights, tiny

_ADDS = re.compile(r"(attn_output|ssm_out|ffn_down\w*)\.weight")


def follower(n_vocab: int) -> Array:
    """The token after each token: [n_vocab]. Only ordinary tokens come."""
    order = np.random.default_rng(5).permutation(np.arange(300, n_vocab))
    after = np.resize(order, n_vocab)
    after[order] = np.roll(order, -1)
    return after


def _embedding(n_vocab: int, n_embd: int) -> Array:
    """Its second half is empty. [n_vocab, n_embd]"""
    x = np.random.default_rng(6).standard_normal((n_vocab, n_embd // 2))
    return np.concatenate([x, np.zeros_like(x)], axis=1)


def _weights(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if name in ("token_embd.weight", "output.weight") or ".nextn.embed_tokens." in name:
        x = _embedding(*shape)
        if name != "output.weight":
            return x
        out = np.zeros_like(x)
        out[follower(shape[0])] = 0.2 * x
        return out
    if ".nextn.shared_head_head." in name:
        after = follower(shape[0])
        out = np.zeros(shape)
        out[after[after]] = 0.2 * np.roll(_embedding(*shape), shape[1] // 2, axis=1)
        return out
    if ".nextn.eh_proj." in name:  # [n_embd, token's embedding and state before it]
        n = shape[0] // 2
        out = np.zeros(shape)
        out[np.arange(2 * n), np.r_[0:n, 2 * n : 3 * n]] = 1
        return out
    if "norm" in name and name.endswith(".weight"):
        return np.ones(shape)
    x = random_weights(name, shape, rng)
    return 0.01 * x if _ADDS.search(name) else x


def foreseeing(name: str, source: Path, to: Path, n_trunk: int = N_LAYER) -> Path:
    """A model of the architecture `name` whose MTP layer is right. n_trunk: its other layers."""
    return tiny(name, source, to, n_mtp=1, n_trunk=n_trunk, weights=_weights)


def _n_trunk(path: Path) -> int:
    values = {n.split(".", 1)[-1]: v for n, (_, v) in header_of(path).items()}
    return int(values["block_count"] - values["nextn_predict_layers"])


def mtp_part(path: Path, to: Path) -> Path:
    """The MTP layers alone, as convert_hf_to_gguf --mtp writes them."""
    n = _n_trunk(path)
    return rewrite(path, to, weights=lambda name, x: None if 0 <= _layer(name) < n else x)


def trunk_part(path: Path, to: Path) -> Path:
    """The model without its MTP layers. Its header still counts them, where libllama accepts that."""
    n, name = _n_trunk(path), header_of(path)["general.architecture"][1]
    counts = {"block_count": n, "nextn_predict_layers": 0} if name.startswith("qwen") else {}
    put = {f"{name}.{key}": (U32, value) for key, value in counts.items()}
    return rewrite(path, to, put=put, weights=lambda name, x: None if _layer(name) >= n else x)


def _layer(name: str) -> int:
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found[1]) if found else -1
