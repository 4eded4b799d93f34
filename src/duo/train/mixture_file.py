"""A mixture as a GGUF: the names, the order of rows and the header of llama.cpp's glm4moe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from duo.train.gguf_out import write_model
from duo.train.llama import Layer
from duo.train.mixture import Experts, Mixture
from duo.train.mtp import MtpLayer
from duo.train.target_file import ModelFile

ARCHITECTURE = "glm4moe"


def write_mixture(
    out: Path, mixture: Mixture, mtp: MtpLayer | None, vocabulary: ModelFile, weight_type: str, card: Mapping[str, Any]
) -> int:
    """Returns the file's bytes. mtp: None: the file has no such layer. Raises DuoError."""
    s = mixture.sizes
    values: dict[str, Any] = s.keys(s.n_layer + (mtp is not None))
    if mtp is not None:
        values["nextn_predict_layers"] = 1
    name = "a small mixture of experts"
    return write_model(out, ARCHITECTURE, name, values, tensors_of(mixture, mtp), vocabulary, weight_type, card)


def tensors_of(mixture: Mixture, mtp: MtpLayer | None) -> dict[str, npt.NDArray[np.float32]]:
    """By their names in the file, rows first."""
    named: dict[str, Tensor] = {
        "token_embd.weight": mixture.embedding.weight,
        "output_norm.weight": mixture.output_norm.weight,
        "output.weight": mixture.output.weight,
    }
    for i, layer in enumerate(mixture.layers):
        named |= _layer(layer, f"blk.{i}.", mixture.sizes.n_head_dim)
    if mtp is not None:
        blk = f"blk.{len(mixture.layers)}."
        named |= _layer(mtp.layer, blk, mixture.sizes.n_head_dim)
        parts = {"eh_proj": mtp.eh_proj, "enorm": mtp.enorm, "hnorm": mtp.hnorm, "shared_head_norm": mtp.head_norm}
        named |= {f"{blk}nextn.{name}.weight": part.weight for name, part in parts.items()}
    return {name: t.detach().float().cpu().numpy() for name, t in named.items()}


def _layer(layer: Layer, blk: str, n_head_dim: int) -> dict[str, Tensor]:
    named = {
        f"{blk}attn_norm.weight": layer.attn_norm.weight,
        f"{blk}attn_q.weight": halves(layer.attn_q.weight, n_head_dim),
        f"{blk}attn_k.weight": halves(layer.attn_k.weight, n_head_dim),
        f"{blk}attn_v.weight": layer.attn_v.weight,
        f"{blk}attn_output.weight": layer.attn_output.weight,
        f"{blk}post_attention_norm.weight": layer.ffn_norm.weight,
    }
    ffn = layer.ffn
    if not isinstance(ffn, Experts):
        return named | {f"{blk}ffn_{part}.weight": getattr(ffn, part).weight for part in ("gate", "up", "down")}
    named |= {f"{blk}ffn_{part}_exps.weight": getattr(ffn, part) for part in ("gate", "up", "down")}
    named |= {f"{blk}ffn_{part}_shexp.weight": getattr(ffn.shared, part).weight for part in ("gate", "up", "down")}
    return named | {f"{blk}ffn_gate_inp.weight": ffn.router.weight, f"{blk}exp_probs_b.bias": ffn.bias}


def halves(rows: Tensor, n_head_dim: int) -> Tensor:
    """Rows of heads whose neighbours turn together, in the order of a glm4moe: the first ones of all pairs, then the
    second ones."""
    return rows.unflatten(0, (-1, n_head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)
