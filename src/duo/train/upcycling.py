"""A mixture that begins as a dense llama does: its feed-forward units become experts.

Units that contribute most to all tokens become the shared expert, and units that work for the same tokens an expert
("MoEfication", Zhang et al. 2022). Attention, embedding, norms and the first layers stay as they are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from duo.train.layers import SwiGLU
from duo.train.llama import Llama
from duo.train.mixture import Experts, Mixture, MixtureShape

N_DIRECTIONS = 64  # of the tokens, along which units are compared
N_ROUNDS = 20
RIDGE = 1e-2
NOISE = 1e-3  # of the weights' own size


@torch.no_grad()
def upcycled(dense: Llama, shape: MixtureShape, tokens: Tensor, seed: int) -> Mixture:
    """tokens [batch, n]: a text on which units are compared."""
    mixture = Mixture(shape)
    own = dense.state_dict()
    left = mixture.load_state_dict({k: v for k, v in own.items() if mixture.state_dict().keys() >= {k}}, strict=False)
    assert all(".ffn." in name for name in left.missing_keys), left.missing_keys
    inputs = _ffn_inputs(dense, tokens)
    for i in range(shape.n_dense, shape.n_layer):
        source, experts = dense.layers[i].ffn, mixture.layers[i].ffn
        assert isinstance(source, SwiGLU) and isinstance(experts, Experts)
        _divide(source, experts, inputs[i], np.random.default_rng([seed, i]))
    return mixture


def _ffn_inputs(dense: Llama, tokens: Tensor) -> list[Tensor]:
    """Of each layer [tokens, n_embd]."""
    found: list[Tensor] = []
    hooks = [
        layer.ffn.register_forward_pre_hook(lambda _, given: found.append(given[0].flatten(0, -2)))
        for layer in dense.layers
    ]
    dense.eval()(tokens)
    for hook in hooks:
        hook.remove()
    return found


def _divide(source: SwiGLU, experts: Experts, x: Tensor, rng: np.random.Generator) -> None:
    n_expert, n_each = experts.gate.shape[:2]
    hidden = F.silu(source.gate(x)) * source.up(x)
    work = (hidden.abs() * source.down.weight.norm(dim=0)).numpy()  # [tokens, units]
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
    wanted = (work - work.mean(0)) / work.std(0)
    n = x.shape[1]
    gram = x.T @ x / len(x)
    ridge = RIDGE * gram.diagonal().mean() * torch.eye(n)
    return torch.linalg.solve(gram + ridge, x.T @ wanted / len(x)).T
