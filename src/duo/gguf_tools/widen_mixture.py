"""The plan of a widened mixture of experts (GLM-4.5's layout): more layers and wider experts, and the same routing.

- The number of experts stays, and so does each router: its columns are multiplied by the residual, of which only those
  of the source are not zero. Added layers choose experts as the layer behind them does, whose router and norm they
  have, so that a pass over a text reads about as many distinct experts there. Their experts add nothing: they are
  multiplied by zeros only.
- Experts and the shared one become wider as in `widen`. Dense layers keep their proportion to the width of the model.
- MTP layers stay behind all others. Their state and embedding are the two halves of a matrix's columns, so each half
  has the source's columns first.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from duo.errors import BadValueError
from duo.gguf_tools.whole_file import whole_file
from duo.gguf_tools.widen_plan import AXES, SmallModel, WidenedShape, WidenedTensor

_EXPERT_AXES = {
    "post_attention_norm": ("embd",),
    "attn_q_norm": ("head",),
    "attn_k_norm": ("head",),
    "ffn_gate_inp": ("expert", "embd"),
    "exp_probs_b": ("expert",),
    "ffn_gate_exps": ("expert", "ff_expert", "embd"),
    "ffn_up_exps": ("expert", "ff_expert", "embd"),
    "ffn_down_exps": ("expert", "embd", "ff_expert"),
    "ffn_gate_shexp": ("ff_shared", "embd"),
    "ffn_up_shexp": ("ff_shared", "embd"),
    "ffn_down_shexp": ("embd", "ff_shared"),
}
_MTP_AXES = {
    "eh_proj": ("embd", "pair"),
    "enorm": ("embd",),
    "hnorm": ("embd",),
    "shared_head_norm": ("embd",),
    "embed_tokens": ("vocab", "embd"),
    "shared_head_head": ("vocab", "embd"),
}
_ROUTING = ("post_attention_norm", "ffn_gate_inp", "exp_probs_b")  # what added layers have of the layer behind them
_DENSE_STEP = 256


class SmallMixture(SmallModel):
    """A glm4moe. n_ff of its shapes is the width of an expert; n_layer is without MTP layers."""

    ff_ratio = 0.35
    optional = SmallModel.optional | {
        "attn_q_norm", "attn_k_norm", "exp_probs_b", "ffn_gate", "ffn_up", "ffn_down", *_MTP_AXES,
    }  # fmt: skip
    width_names: ClassVar[dict[str, str]] = {
        **SmallModel.width_names, "ff": "the width of dense layers,", "ff_expert": "n_ff",
        "ff_shared": "the width of the shared expert,", "pair": "twice n_embd,",
    }  # fmt: skip

    def _number(self, key: str, default: int | None = None) -> int:
        return self.value(f"{self.arch}.{key}", int, default)

    def _own_shape(self) -> WidenedShape:
        self.n_mtp = self._number("nextn_predict_layers", 0)
        self.n_dense = self._number("leading_dense_block_count", 0)
        self.n_ff_dense = self._number("feed_forward_length")
        n_layer = self._number("block_count") - self.n_mtp
        if not 0 <= self.n_dense < n_layer:
            raise BadValueError(
                f"{self.path}: {self.n_dense} of {n_layer} layers are dense, so none has experts; convert it again"
            )
        return WidenedShape(self._number("embedding_length"), self._number("expert_feed_forward_length"), n_layer)

    def _own_axes(self) -> dict[str, tuple[str, ...]]:
        return {name: axes for name, axes in AXES.items() if name != "ffn_norm"} | _EXPERT_AXES | _MTP_AXES

    def _axes_of(self, name: str) -> tuple[str, ...]:
        return ("expert",) if name.endswith(".exp_probs_b.bias") else super()._axes_of(name)

    def keys(self, shape: WidenedShape) -> dict[str, int]:
        return super().keys(shape) | {
            "feed_forward_length": self._n_ff_dense(shape),
            "expert_feed_forward_length": shape.n_ff,
            "block_count": shape.n_layer + self.n_mtp,
        }

    def _n_ff_dense(self, shape: WidenedShape) -> int:
        wanted = self.n_ff_dense * shape.n_embd // self.shape.n_embd
        return wanted if shape.n_embd == self.shape.n_embd else -(-wanted // _DENSE_STEP) * _DENSE_STEP

    def _widths(self, shape: WidenedShape) -> dict[str, int]:
        return super()._widths(shape) | {
            "ff": self._n_ff_dense(shape),
            "ff_expert": shape.n_ff,
            "ff_shared": shape.n_ff * self._number("expert_shared_count"),
            "pair": 2 * shape.n_embd,
            "expert": self._number("expert_count"),
        }

    def _layers(self, n_layer: int) -> list[tuple[int, bool]]:
        n_own, found = self.shape.n_layer, [(i, False) for i in range(self.n_dense)]
        n_each, n_more = divmod(max(0, n_layer - n_own), n_own - self.n_dense)
        for i in range(self.n_dense, n_own):
            found += [(i, True)] * (n_each + (i - self.n_dense < n_more)) + [(i, False)]
        return found + [(n_own + i, False) for i in range(self.n_mtp)]

    def _suffixes(self, layer: int) -> list[str]:
        start = f"blk.{layer}."
        return [name[len(start) :] for name in self.tensors if name.startswith(start)]

    def _of_layer(self, tensor: WidenedTensor, is_added: bool) -> WidenedTensor:
        part, axes = tensor.name.split(".")[-2], self._axes_of(tensor.name)
        if part == "ffn_gate_inp":
            tensor = replace(tensor, type=tensor.like.tensor_type)  # F32: routers are not quantised
        if "pair" in axes:
            tensor = replace(tensor, n_parts=2)
        # All norms are of vectors that are zero in what was added.
        if axes == ("embd",) and tensor.name.endswith(".weight"):
            tensor = replace(tensor, scale=(self.shape.n_embd / tensor.dims[0]) ** 0.5)
        if not is_added or part in _ROUTING:
            return tensor
        return replace(tensor, source=None, is_blank=part.startswith("ffn_"))


def small_model(path: Path) -> SmallModel:
    """The small model, of the class of its architecture. Raises BadValueError, UnknownModelError."""
    reader = whole_file(path)
    field = reader.fields.get("general.architecture")
    is_mixture = field is not None and field.parts[-1].tobytes() == b"glm4moe"
    return (SmallMixture if is_mixture else SmallModel)(path, reader)
