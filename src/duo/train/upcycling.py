"""A mixture that begins as a dense llama does: its feed-forward units become experts.

Units that contribute most to all tokens become the shared expert, and units that work for the same tokens an expert
("MoEfication", Zhang et al. 2022). Their last matrices are fitted to what the dense layers give. Attention, embedding,
norms and the first layers stay as they are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from duo.train.layers import SwiGLU
from duo.train.llama import Llama
from duo.train.mixture import Experts, Mixture, MixtureShape
from duo.train.mtp import MtpLayer

N_DIRECTIONS = 64  # of the tokens, along which units are compared
N_ROUNDS = 20
RIDGE = 1e-2
NOISE = 1e-3  # of the weights' own size


@torch.no_grad()
def upcycled(dense: Llama, shape: MixtureShape, tokens: Tensor, seed: int) -> Mixture:
    """tokens [batch, n]: a text on which units are compared, and matrices fitted."""
    mixture = Mixture(shape)
    own = dense.state_dict()
    left = mixture.load_state_dict({k: v for k, v in own.items() if mixture.state_dict().keys() >= {k}}, strict=False)
    assert all(".ffn." in name for name in left.missing_keys), left.missing_keys
    where = (torch.arange(tokens.shape[1]), dense.freqs)
    wanted = x = dense.embedding(tokens)  # of the dense model, and of the mixture
    for i, (source, layer) in enumerate(zip(dense.layers, mixture.layers, strict=True)):
        middle = source.attended(wanted, *where)
        if i >= shape.n_dense:
            inputs = source.ffn_norm(middle).flatten(0, -2)
            _divide(source.ffn, layer.ffn, inputs, np.random.default_rng([seed, i]))
        wanted = middle + source.ffn(source.ffn_norm(middle))
        x = layer.attended(x, *where)
        if i >= shape.n_dense:
            _fit(layer.ffn, layer.ffn_norm(x), wanted - x)
        x = x + layer.ffn(layer.ffn_norm(x))
    return mixture


@torch.no_grad()
def begun(layer: MtpLayer, tokens: Tensor) -> None:
    """Makes an MTP layer of the mixture's last layer: what that one reads is told as well as a linear map can from the
    token and the state before it, and the experts are fitted to what comes out of it."""
    target = layer.target
    last, where = target.layers[-1], (torch.arange(tokens.shape[1]), target.freqs)
    layer.layer.load_state_dict(last.state_dict())
    layer.head_norm.load_state_dict(target.output_norm.state_dict())
    x = target.embedding(tokens)
    for before in target.layers[:-1]:
        x = before(x, *where)
    wanted = last(x, *where)
    pairs = layer.pairs(tokens[:, 1:], target.output_norm(wanted)[:, :-1])
    layer.eh_proj.weight.copy_(_linear(pairs, x[:, 1:]))
    middle = layer.layer.attended(layer.eh_proj(pairs), where[0][1:], where[1])
    _fit(layer.layer.ffn, layer.layer.ffn_norm(middle), wanted[:, 1:] - middle)


def _divide(source: SwiGLU, experts: Experts, x: Tensor, rng: np.random.Generator) -> None:
    n_expert, n_each = experts.gate.shape[:2]
    work = (source.hidden(x).abs() * source.down.weight.norm(dim=0)).numpy()  # [tokens, units]
    mean = work.mean(0)
    order = np.argsort(-mean, kind="stable")
    n_shared = experts.shared.gate.weight.shape[0]
    always, rest = np.sort(order[:n_shared]), order[n_shared : n_shared + n_expert * n_each]
    for part in ("gate", "up"):
        getattr(experts.shared, part).weight.copy_(getattr(source, part).weight[always])
    experts.shared.down.weight.copy_(source.down.weight[:, always])
    groups = rest[_groups(work[:, rest], n_expert, n_each, rng)]  # [n_expert, n_each]
    experts.gate.copy_(source.gate.weight[groups])
    experts.up.copy_(source.up.weight[groups])
    experts.down.copy_(source.down.weight[:, groups].transpose(0, 1))
    for p in (experts.gate, experts.up, experts.down):
        noise = rng.standard_normal(p.shape, np.float32)
        p += torch.from_numpy(noise) * NOISE * p.std()
    experts.router.weight.copy_(_router(x, torch.from_numpy(work[:, groups].sum(-1))))


def _groups(work: npt.NDArray[np.float32], n: int, n_each: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Columns of work [tokens, n * n_each] in n groups of one size, by likeness: [n, n_each]."""
    scaled = work - work.mean(0)
    directions = rng.standard_normal((N_DIRECTIONS, len(work)), np.float32)
    points = (directions @ scaled).T
    points /= np.linalg.norm(points, axis=1, keepdims=True) + 1e-9
    centres = points[rng.permutation(len(points))[:n]]
    for _ in range(N_ROUNDS):
        likeness = points @ centres.T
        group = np.full(len(points), -1)
        room = np.full(n, n_each)
        for flat in np.argsort(-likeness, axis=None, kind="stable"):
            unit, to = divmod(int(flat), n)
            if group[unit] < 0 and room[to]:
                group[unit] = to
                room[to] -= 1
        centres = np.stack([points[group == i].mean(0) for i in range(n)])
        centres /= np.linalg.norm(centres, axis=1, keepdims=True) + 1e-9
    return np.stack([np.flatnonzero(group == i) for i in range(n)])


def _router(x: Tensor, work: Tensor) -> Tensor:
    """The linear map of x whose values tell best how much each expert has to do: [n_expert, n_embd]."""
    return _linear(x, (work - work.mean(0)) / work.std(0))


def _fit(experts: Experts, x: Tensor, wanted: Tensor) -> None:
    """Moves the `down` matrices until the sum is as near to what is wanted as they can bring it."""
    hidden = torch.cat((experts.hidden(x), experts.shared.hidden(x)), -1)
    more = _linear(hidden, wanted - experts(x))
    n_expert, _, n_each = experts.down.shape
    experts.down += more[:, : n_expert * n_each].unflatten(1, (n_expert, n_each)).transpose(0, 1)
    experts.shared.down.weight += more[:, n_expert * n_each :]


def _linear(x: Tensor, wanted: Tensor) -> Tensor:
    """The matrix w for which x @ w.T is nearest to what is wanted, in the mean over the rows (ridge regression)."""
    x, wanted = x.flatten(0, -2), wanted.flatten(0, -2)
    gram = x.T @ x / len(x)
    ridge = RIDGE * gram.diagonal().mean() * torch.eye(x.shape[1])
    return torch.linalg.solve(gram + ridge, x.T @ wanted / len(x)).T
