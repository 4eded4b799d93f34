"""`duo train-head`: an EAGLE-3 head for a target."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from duo import _core
from duo.errors import BadValueError
from duo.options.train import HeadOptions
from duo.train.course import Course, Trained, TrainingRequest
from duo.train.gguf_out import write_model
from duo.train.pytorch import need_torch
from duo.train.sizes import TargetShape, head_network, target_layers
from duo.train.target_file import Floats, ModelFile

if TYPE_CHECKING:
    from duo.train.eagle3 import Eagle3Head, Eagle3Shape


def train_head(request: TrainingRequest) -> Trained:
    """Teaches, trains and writes a head. Raises DuoError."""
    need_torch()
    from duo.train.dataset import Lessons
    from duo.train.head_task import HeadTask

    o = cast("HeadOptions", request.options)
    file = ModelFile(request.target)
    target = TargetShape.of(file)
    if not _core.keeps_layer_inputs(file.header.architecture):
        raise BadValueError(
            f"{file.path.name} is a {file.header.architecture} model, whose hidden states llama.cpp does not give; "
            "train a draft for it (duo train-draft)"
        )
    layers = target_layers(target, o["layers"])
    shape = shape_of(target, o, layers)
    course = Course(request, target, layers)
    course.teach()
    counts = Lessons(course.folder, "learn").counts(target.n_vocab)
    head = new_head(shape, file, counts, o["seed"])
    share = float(counts[head.d2t.numpy()].sum() / counts.sum())
    request.say(f"the head drafts {shape.n_rows} of {target.n_vocab} tokens, which are {100 * share:.1f} % of the data")
    trained = course.train(HeadTask(head, o["steps"]), asdict(shape) | {"target_layers": list(layers)})
    card = course.card("train-head", {**trained, "rows_share": round(share, 4)})
    n_bytes = write_head(request, head, file, card)
    return Trained(request.out, n_bytes, card)


def shape_of(target: TargetShape, o: HeadOptions, layers: tuple[int, int, int]) -> Eagle3Shape:
    """Raises BadValueError: sizes that do not go together."""
    from duo.train.eagle3 import Eagle3Shape

    n = head_network(target, o)
    return Eagle3Shape(
        n_embd=n.n_embd,
        n_head=n.n_head,
        n_head_kv=n.n_head_kv,
        n_head_dim=n.n_head_dim,
        n_ff=n.n_ff,
        n_vocab=target.n_vocab,
        n_rows=n.n_rows,
        n_embd_target=target.n_embd,
        target_layers=layers,
        eps=target.eps,
        rope_base=target.rope_base,
        n_ctx=target.n_ctx,
    )


def new_head(shape: Eagle3Shape, file: ModelFile, counts: npt.NDArray[Any], seed: int) -> Eagle3Head:
    """An untrained head; counts: of each token in the data, the most frequent of which it can draft.

    The embedding is the target's, which stays as it is; a narrower head gets its main components, and trains them.
    Raises BadValueError: the target has no embedding that can be read.
    """
    import torch

    from duo.train.eagle3 import Eagle3Head
    from duo.train.layers import start_matrices

    head = Eagle3Head(shape)
    start_matrices(head, seed, n_branches=2)
    frequent = np.sort(np.argsort(-counts, kind="stable")[: shape.n_rows])
    head.d2t.copy_(torch.from_numpy(frequent.astype(np.int64)))
    embedding = file.tensor("token_embd.weight")
    if embedding is None or embedding.shape != (shape.n_vocab, shape.n_embd_target):
        raise BadValueError(f"{file.path.name} has no token_embd.weight of {shape.n_vocab} rows; heads need one")
    if shape.n_embd == shape.n_embd_target:
        head.embedding.weight.requires_grad_(False)
        start = torch.from_numpy(embedding)
    else:
        start = torch.from_numpy(components(embedding, shape.n_embd))
    with torch.no_grad():
        head.embedding.weight.copy_(start)
    return head


def components(x: Floats, n: int) -> Floats:
    """The rows of x along its n main directions (all of them, and zeros, if it has fewer columns)."""
    _, directions = np.linalg.eigh(x.T @ x)
    projected: Floats = x @ directions[:, ::-1][:, :n].astype(np.float32)
    return np.pad(projected, ((0, 0), (0, n - projected.shape[1])))


def header_of(s: Eagle3Shape) -> dict[str, int | float | bool | list[int]]:
    """Keys of an eagle3 file (llama.cpp, src/models/eagle3.cpp)."""
    return {
        **s.keys(n_layer=1),
        "target_layers": list(s.target_layers),
        "target_hidden_size": s.n_embd_target,
        "norm_before_residual": False,
        "norm_before_fc": False,
    }


def tensors_of(head: Eagle3Head) -> dict[str, npt.NDArray[Any]]:
    """Tensors of an eagle3 file by their names there, rows first."""
    layer = "blk.0."
    named = {
        "fc": head.fc,
        "token_embd": head.embedding,
        f"{layer}attn_norm": head.attn_norm,
        f"{layer}attn_norm_2": head.attn_norm_2,
        f"{layer}attn_q": head.attn_q,
        f"{layer}attn_k": head.attn_k,
        f"{layer}attn_v": head.attn_v,
        f"{layer}attn_output": head.attn_output,
        f"{layer}ffn_norm": head.ffn_norm,
        f"{layer}ffn_gate": head.ffn.gate,
        f"{layer}ffn_up": head.ffn.up,
        f"{layer}ffn_down": head.ffn.down,
        "output_norm": head.output_norm,
        "output": head.output,
    }
    tensors = {f"{name}.weight": part.weight.detach().float().cpu().numpy() for name, part in named.items()}
    return {**tensors, "d2t": head.d2t.cpu().numpy()}


def write_head(request: TrainingRequest, head: Eagle3Head, file: ModelFile, card: dict[str, Any]) -> int:
    """Returns the file's bytes. Raises DuoError."""
    name = f"EAGLE-3 head for {file.path.stem}"
    values = header_of(head.shape)
    return write_model(
        request.out, "eagle3", name, values, tensors_of(head), file, request.options["weight_type"], card
    )
