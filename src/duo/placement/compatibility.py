"""Checks from the headers alone whether a draft suits a target, what memory both need, and where they fit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from duo import _core
from duo.models.head import Head
from duo.models.header import Header, read_header
from duo.options.model import ModelOptions, with_mtp
from duo.options.validate import engine_options
from duo.placement.fit import PairPlacement
from duo.placement.memory import Need
from duo.placement.resolve_auto import (
    contexts,
    needs,
    placement_of,
    texts_that_fit,
    with_context_fitted,
    with_experts_placed,
)
from duo.placement.states import way_back

if TYPE_CHECKING:
    from duo.placement.devices import Device


@dataclass(frozen=True)
class VocabularyFacts:
    """A tokenizer as the engine sees it. An id of -1 means that there is no such token."""

    type: str  # "spm", "bpe", ...
    n_tokens: int
    bos: int
    bos_text: str
    add_bos: bool  # whether prompts begin with it
    eos: int
    eos_text: str
    add_eos: bool
    keeps_state: bool  # recurrent or hybrid: no single token can be taken back


@dataclass(frozen=True)
class CheckedModel:
    """What is known of one model without loading it."""

    header: Header
    vocabulary: VocabularyFacts
    n_ctx: int  # tokens
    need: Need
    head: Head | None  # if it is a draft head, what it reads

    def as_dict(self) -> dict[str, Any]:
        """For JSON; sizes in bytes."""
        return {
            "file": self.header.path,
            "parts": self.header.n_parts,
            "architecture": self.header.architecture,
            "parameters": self.header.n_parameters,
            "weight_type": self.header.weight_type,
            "matrix_bytes": self.header.matrix_bytes,
            "without_kernels": [t for t in self.header.matrix_bytes if t not in _core.kernel_types()],
            "layers": self.header.n_layer,
            "mtp_layers": self.header.n_mtp,
            "context": self.n_ctx,
            "head": self.head.as_dict() if self.head else None,
            "vocabulary": asdict(self.vocabulary),
            "way_back": way_back(self.header),
            "memory": {
                "weights": self.need.total_weights,
                "cache": self.need.total_cache,
                "work": max(self.need.work, self.need.logits),
                "total": self.need.total,
            },
        }


@dataclass(frozen=True)
class PairCheck:
    """What is known of a pair, or of a model alone, without loading it."""

    target: CheckedModel
    draft: CheckedModel | None
    why_not: str  # one sentence; empty if the draft suits the target
    difference: str  # the first one between the vocabularies; empty: they have one
    shared: float | None  # of the smaller vocabulary, that both have; None: they have one
    host_free: int  # bytes
    placement: PairPlacement  # the one of -ngl auto -ngld auto
    fits: bool  # whether there is enough memory

    @property
    def compatible(self) -> bool:
        return not self.why_not

    def as_dict(self) -> dict[str, Any]:
        """For JSON; sizes in bytes."""
        placement = {
            p.what: {
                "n_gpu_layers": p.n_gpu_layers,
                "of": p.n_all,
                "n_cpu_moe": p.n_cpu_moe,
                "devices": dict(zip(p.devices, p.bytes.devices, strict=True)),
                "cpu": p.bytes.host,
            }
            for p in (self.placement.target, self.placement.draft)
            if p is not None
        }
        return {
            "compatible": self.compatible,
            "why_not": self.why_not or None,
            "difference": self.difference or None,
            "shared_vocabulary": self.shared,
            "target": self.target.as_dict(),
            "draft": self.draft.as_dict() if self.draft else None,
            "placement": placement,
            "fits": self.fits,
            "cpu_free": self.host_free,
        }


def check_pair(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str] | None,
    devices: Sequence[Device],
    host_free: int | None = None,
    *,
    mtp: bool = False,
    **options: Any,
) -> PairCheck:
    """Keywords are those of `Duo`, such as n_ctx and type_k. draft None: the target alone. devices: those of this
    machine, or of another one. host_free: in bytes; by default what is available. mtp: the draft is the MTP layers of
    its file, which may be the target's.

    Raises UnknownModelError or BadValueError (a file cannot be read), DoesNotFitError, and TypeError (unknown keyword).
    """
    o = engine_options({"n_gpu_layers": "auto", "n_gpu_layers_draft": "auto", **options})
    of_target = ModelOptions.of(o, "target", os.fsdecode(target))
    of_draft = None if draft is None else ModelOptions.of(o, "draft", os.fsdecode(draft))
    if mtp and of_draft is not None:
        of_target, of_draft = with_mtp(of_target, of_draft)
    headers = [read_header(path) for path in (target, draft) if path is not None]
    of_target = with_experts_placed(with_context_fitted(of_target, of_draft, devices), of_draft, devices)
    if of_target.n_parallel == "auto":
        n = texts_that_fit(of_target, of_draft, devices)
        of_target, of_draft = of_target.for_texts(n), None if of_draft is None else of_draft.for_texts(n)
    facts = _core.vocab_check(os.fsencode(target), os.fsencode(target if draft is None else draft), mtp)
    vocabularies = VocabularyFacts(**facts["target"]), VocabularyFacts(**facts["draft"])
    why_not = facts["mismatch"]
    n_ctx = contexts(of_target, of_draft, headers)
    need = needs(of_target, of_draft, headers, devices)
    p = placement_of(of_target, of_draft, headers, devices)
    free = _core.memory_available() if host_free is None else host_free
    on_host = p.target.bytes.host + (0 if p.draft is None else p.draft.bytes.host)
    head = None if draft is None else Head.of(headers[1], mtp=mtp)
    if not why_not and draft is not None and head and not head.own_output and any(m.devices for m in p.models):
        why_not = (  # as csrc/llama/weights_loader.cpp
            f"{os.fsdecode(draft)} uses its target's output matrix, so both must be on the CPU (-dev none -devd none); "
            "choose a head with an output matrix of its own for another device"
        )
    n = len(headers)
    models = zip(headers, vocabularies[:n], n_ctx, need, (None, head)[:n], strict=True)
    checked, *others = (CheckedModel(*of_one) for of_one in models)
    return PairCheck(
        checked, others[0] if others else None, why_not=why_not, difference=facts["difference"],
        shared=facts["shared"], host_free=free, placement=p, fits=on_host <= free,
    )  # fmt: skip
