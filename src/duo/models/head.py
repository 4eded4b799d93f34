"""What the header of a draft head says: which hidden states of its target it reads, and what it brings."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any, Literal

from duo.errors import BadValueError
from duo.models.header import Header, read_header
from duo.support.wording import plural

Kind = Literal["eagle3", "mtp", "dflash", "dspark"]
HEADS = {"eagle3": "an EAGLE-3 head", "mtp": "MTP layers", "dflash": "a DFlash head", "dspark": "a DSpark head"}


@dataclass(frozen=True)
class Head:
    """What a file says of the draft head that it holds."""

    kind: Kind
    layers: tuple[int, ...]  # of the target, whose inputs the head reads (EAGLE-3, DFlash, DSpark)
    target_width: int  # numbers in one of these inputs, or in the state after the last layer
    n_draft_tokens: int  # tokens of the vocabulary that the head can propose
    own_embedding: bool  # False: it uses the target's
    own_output: bool
    n_block: int = 0  # DFlash, DSpark: tokens of a block

    @classmethod
    def of(cls, h: Header, *, mtp: bool = False) -> Head | None:
        """The head in a file; None: it has none. mtp: the head is the file's MTP layers, whatever else it has."""
        shapes = {t.name: t.shape for t in h.tensors}
        if h.n_mtp and (mtp or not h.has_trunk):
            return cls("mtp", (), h.n_embd, h.n_vocab, own_embedding=True, own_output=True)
        if h.architecture not in ("eagle3", "dflash"):
            return None
        of_block: Kind = "dspark" if "markov_w1.weight" in shapes else "dflash"
        kind: Kind = "eagle3" if h.architecture == "eagle3" else of_block
        layers = h.values.get(f"{h.architecture}.target_layers")
        width = h.values.get("eagle3.target_hidden_size") if kind == "eagle3" else h.n_embd
        block = h.values.get("dflash.block_size", 0)
        own_embedding = "token_embd.weight" in shapes
        return cls(
            kind,
            layers=tuple(layers) if isinstance(layers, list) else (),
            target_width=width if isinstance(width, int) else 0,
            n_draft_tokens=shapes.get("d2t", (h.n_vocab,))[-1],
            own_embedding=own_embedding,
            # The embedding of a DFlash head is its output matrix, too.
            own_output="output.weight" in shapes or (kind != "eagle3" and own_embedding),
            n_block=block if isinstance(block, int) else 0,
        )

    def line(self) -> str:
        """A line for the reader of `duo check`."""
        if self.kind == "mtp":
            return f"{HEADS['mtp']}: it reads the target's last state of width {self.target_width}"
        layers = ", ".join(map(str, self.layers))
        borrowed = [n for n, own in (("embedding", self.own_embedding), ("output", self.own_output)) if not own]
        uses = f"; its target's {' and '.join(borrowed)}" if borrowed else ""
        blocks = f" in blocks of {self.n_block}" if self.n_block else ""
        tokens = f"{self.n_draft_tokens} tokens" if self.n_draft_tokens else "any token"
        reads = f"it reads layers {layers} of width {self.target_width}"
        return f"{HEADS[self.kind]}: {reads}; proposes {tokens}{blocks}{uses}"

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return asdict(self)


def cache_warning(type_k: str, type_v: str) -> list[str]:
    """A warning, if the cache of a head has quantised types; else an empty list."""
    flags = [f"{flag} {t}" for flag, t in (("-ctkd", type_k), ("-ctvd", type_v)) if t not in ("f32", "f16", "bf16")]
    if not flags:
        return []
    why = "a quantised cache of a draft head can cost nearly all right guesses (from 99 to 2%, llama.cpp #25725)"
    return [f"{why}; leave out {' and '.join(flags)}, and it is f16"]


def refused_layers(h: Header) -> str:
    """Why a target's own MTP layers are not used, in a sentence; empty if it has none, or they can be."""
    from duo import _core

    if not h.n_mtp or not h.has_trunk or _core.runs_mtp(h.architecture):
        return ""
    return f"the target has {plural(h.n_mtp, 'MTP layer')}, but duo cannot run those of {h.architecture} models"


def check_kind(draft: str | os.PathLike[str], spec_type: str) -> None:
    """Raises BadValueError: the draft's file is not of the kind that --spec-type names, and what read_header raises."""
    kind = spec_type.removeprefix("draft-")
    if kind not in ("eagle3", "dflash", "dspark"):
        return  # MTP layers are looked for while loading
    head = Head.of(read_header(draft))
    if head is None or head.kind != kind:
        raise BadValueError(
            f"{os.fsdecode(draft)} is no {HEADS[kind].split(' ', 1)[1]} (--spec-type {spec_type}); give one (-md), or "
            "leave out --spec-type"
        )
