"""What the header of a draft head (EAGLE-3) says: which hidden states of its target it reads, and what it brings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from duo.models.header import Header


@dataclass(frozen=True)
class Head:
    layers: tuple[int, ...]  # of the target, whose inputs it reads
    target_width: int  # numbers in one of these inputs
    n_draft_tokens: int  # of the vocabulary, that it can propose
    own_embedding: bool  # otherwise it uses its target's
    own_output: bool

    @classmethod
    def of(cls, h: Header) -> Head | None:
        """None: the file is another model."""
        if h.architecture != "eagle3":
            return None
        shapes = {t.name: t.shape for t in h.tensors}
        layers = h.values.get("eagle3.target_layers")
        width = h.values.get("eagle3.target_hidden_size")
        return cls(
            layers=tuple(layers) if isinstance(layers, list) else (),
            target_width=width if isinstance(width, int) else 0,
            n_draft_tokens=shapes.get("d2t", (h.n_vocab,))[-1],
            own_embedding="token_embd.weight" in shapes,
            own_output="output.weight" in shapes,
        )

    def line(self) -> str:
        """For the reader of `duo check`."""
        layers = ", ".join(map(str, self.layers))
        borrowed = [n for n, own in (("embedding", self.own_embedding), ("output", self.own_output)) if not own]
        uses = f"; its target's {' and '.join(borrowed)}" if borrowed else ""
        return f"layers {layers} of width {self.target_width}; proposes {self.n_draft_tokens} tokens{uses}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
