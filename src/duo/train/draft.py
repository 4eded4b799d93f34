"""`duo train-draft`: a small llama that guesses what a target would write."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy.typing as npt

from duo import _core
from duo.errors import BadValueError
from duo.options.train import DraftOptions
from duo.train.course import Course, Trained, TrainingRequest
from duo.train.gguf_out import write_model
from duo.train.pytorch import need_torch
from duo.train.sizes import TargetShape, draft_network
from duo.train.target_file import Floats, ModelFile

if TYPE_CHECKING:
    from duo.train.llama import Llama


def train_draft(request: TrainingRequest) -> Trained:
    """Teaches, trains and writes a draft. Raises DuoError."""
    need_torch()
    from duo.train.draft_task import DraftTask

    o = cast("DraftOptions", request.options)
    file = ModelFile(request.target)
    target = TargetShape.of(file)
    draft = new_draft(target, o) if o["start"] is None else _begun(Path(o["start"]), request.target, target.n_vocab)
    course = Course(request, target, ())
    course.teach()
    about = asdict(draft.shape) | {"start": None if o["start"] is None else Path(o["start"]).name}
    card = course.card("train-draft", course.train(DraftTask(draft), about))
    name = f"draft for {file.path.stem}"
    n_bytes = write_model(
        request.out,
        "llama",
        name,
        draft.shape.keys(draft.shape.n_layer),
        tensors_of(draft),
        file,
        o["weight_type"],
        card,
    )
    return Trained(request.out, n_bytes, card)


def _begun(start: Path, target: Path, n_vocab: int) -> Llama:
    """The draft of --from. Raises BadValueError: it does not fit the target."""
    draft = read_llama(ModelFile(start), n_vocab)
    if why := _core.vocab_check(os.fsencode(target), os.fsencode(start))["difference"]:
        raise BadValueError(f"--from {start.name} needs the target's vocabulary: {why}")
    return draft


def new_draft(target: TargetShape, o: DraftOptions) -> Llama:
    """An untrained draft. Raises BadValueError: sizes that do not go together."""
    from duo.train.layers import start_matrices
    from duo.train.llama import Llama, LlamaShape

    n = draft_network(target, o)
    shape = LlamaShape(
        n_embd=n.n_embd,
        n_layer=n.n_layer,
        n_head=n.n_head,
        n_head_kv=n.n_head_kv,
        n_head_dim=n.n_head_dim,
        n_ff=n.n_ff,
        n_vocab=target.n_vocab,
        n_ctx=target.n_ctx,
    )
    draft = Llama(shape)
    start_matrices(draft, o["seed"], n_branches=2 * n.n_layer)
    return draft


def read_llama(file: ModelFile, n_vocab: int | None = None) -> Llama:
    """A llama with the weights of a file; n_vocab: tokens that it must have.

    Raises BadValueError: another architecture, another vocabulary, or parts that this trainer does not have.
    """
    import torch

    from duo.train.llama import Llama, LlamaShape

    h, name = file.header, file.path.name
    if h.architecture != "llama" or file.value("expert_count", 0):
        raise BadValueError(f"{name} is no plain llama (it is {h.architecture}); --from takes only these")
    if n_vocab is not None and h.n_vocab != n_vocab:
        raise BadValueError(
            f"{name} has {h.n_vocab} tokens and the target {n_vocab}; --from needs the target's vocabulary"
        )
    known = {"token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight"}
    known |= {f"blk.{i}.{part}.weight" for i in range(h.n_layer) for part in PARTS}
    if other := next((t.name for t in h.tensors if t.name not in known), None):
        raise BadValueError(f"{name} has a tensor {other}, which plain llamas do not have; --from takes only these")
    names = {t.name for t in h.tensors}
    shape = LlamaShape(
        n_embd=h.n_embd,
        n_layer=h.n_layer,
        n_head=h.n_head,
        n_head_kv=h.n_head_kv[0],
        n_head_dim=h.key_length,
        n_ff=h.n_ff,
        n_vocab=h.n_vocab,
        eps=file.number("attention.layer_norm_rms_epsilon", 1e-5),
        rope_base=file.number("rope.freq_base", 10000.0),
        n_ctx=h.n_ctx_train,
        tied="output.weight" not in names,
    )
    factors = file.tensor("rope_freqs.weight")
    llama = Llama(shape, None if factors is None else torch.from_numpy(factors))
    with torch.no_grad():
        for tensor, part in _named(llama).items():
            weights = file.tensor(tensor)
            if weights is None or weights.shape != tuple(part.weight.shape):
                raise BadValueError(
                    f"{name} has no {tensor} of the shape {tuple(part.weight.shape)}; --from cannot use it"
                )
            part.weight.copy_(torch.from_numpy(weights))
    return llama


PARTS = (
    "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down",
)  # fmt: skip


def _named(llama: Llama) -> dict[str, Any]:
    """Parts of the network by the names of their tensors in a file."""
    named: dict[str, Any] = {"token_embd.weight": llama.embedding, "output_norm.weight": llama.output_norm}
    for i, layer in enumerate(llama.layers):
        for part in PARTS:
            where = getattr(layer.ffn, part.removeprefix("ffn_"), None) if part.startswith("ffn_") else None
            named[f"blk.{i}.{part}.weight"] = getattr(layer, part) if where is None else where
    if not llama.shape.tied:
        named["output.weight"] = llama.output
    return named


def tensors_of(llama: Llama) -> dict[str, npt.NDArray[Any]]:
    """Tensors of a llama file by their names there, rows first."""
    tensors: dict[str, Floats] = {n: p.weight.detach().float().cpu().numpy() for n, p in _named(llama).items()}
    if llama.rope_factors is not None:
        tensors["rope_freqs.weight"] = llama.rope_factors.cpu().numpy()
    return tensors
