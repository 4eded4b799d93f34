"""Training by the target: the networks are llama.cpp's, the teacher's rows stand where they belong, a run goes on."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gguf_files import Array
from model_files import TOKENS, options
from needs import need_torch

from duo import BadValueError, _core
from duo.models.demo import demo_pair

torch = need_torch()

from eagle3_reader import Eagle3Reader  # noqa: E402

from duo.train import draft, head, losses  # noqa: E402
from duo.train.acceptance import Acceptance, runs  # noqa: E402
from duo.train.dataset import Batch  # noqa: E402
from duo.train.draft_task import DraftTask  # noqa: E402
from duo.train.eagle3 import Eagle3Head, Eagle3Shape  # noqa: E402
from duo.train.gguf_out import write_model  # noqa: E402
from duo.train.head_task import HeadTask  # noqa: E402
from duo.train.layers import start_matrices  # noqa: E402
from duo.train.llama import Llama, LlamaShape  # noqa: E402
from duo.train.target_file import ModelFile  # noqa: E402
from duo.train.teacher import best  # noqa: E402

TARGET, DRAFT = demo_pair()
SHAPE = Eagle3Shape(
    n_embd=64, n_head=4, n_head_kv=2, n_head_dim=16, n_ff=96, n_vocab=4096, n_rows=1024, n_embd_target=320,
    target_layers=(1, 2, 3), n_ctx=512,
)  # fmt: skip

pytestmark = pytest.mark.daily


@pytest.fixture(scope="module")
def small_head() -> Eagle3Head:
    counts = np.random.default_rng(3).integers(0, 1000, SHAPE.n_vocab)
    found = head.new_head(SHAPE, ModelFile(TARGET), counts, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in found.parameters():
            if p.ndim == 1:  # norms of ones would hide which is which
                p.copy_(torch.rand(p.shape, generator=generator) + 0.5)
    return found.eval()


def write(out: Path, model: Eagle3Head | Llama) -> Path:
    architecture, values, tensors = (
        ("eagle3", head.header_of(model.shape), head.tensors_of(model))
        if isinstance(model, Eagle3Head)
        else ("llama", model.shape.keys(model.shape.n_layer), draft.tensors_of(model))
    )
    write_model(out, architecture, "a test", values, tensors, ModelFile(TARGET), "f32", {"made_by": "a test"})
    return out


def logits_of(path: Path, tokens: list[int]) -> Array:
    o = options(path, ())
    o.type_k = o.type_v = "f32"  # with caches of 16 bits the logits differ by 4e-3
    o.flash_attn = "off"
    p = _core.Probe(o)
    p.decode(tokens)
    return p.logits()


# ---- the networks


@pytest.mark.parametrize("name", ["demo", "shared keys, scaled turns, tied"])
def test_llama_cpp_computes_the_draft_that_was_trained(tmp_path: Path, name: str) -> None:
    if name == "demo":
        model = draft.read_llama(ModelFile(DRAFT))
    else:
        factors = torch.linspace(1, 4, 8)
        sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_head_kv": 2, "n_head_dim": 16, "n_ff": 96, "n_vocab": 4096}
        model = Llama(LlamaShape(**sizes, eps=1e-6, rope_base=5e4, n_ctx=512, tied=True), factors)
        start_matrices(model, 1, 4)
    path = write(tmp_path / "draft.gguf", model)
    with torch.no_grad():
        ours = model(torch.tensor([TOKENS[:48]]))[0].numpy()
    assert np.abs(ours - logits_of(path, TOKENS[:48])).max() < 1e-3
    again = draft.read_llama(ModelFile(path), 4096)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))


def test_llama_cpp_computes_the_head_that_was_trained(tmp_path: Path, small_head: Eagle3Head) -> None:
    path = write(tmp_path / "head.gguf", small_head)
    rng = np.random.default_rng(4)
    features = rng.standard_normal((12, SHAPE.n_features), np.float32)
    tokens = TOKENS[:12]
    with Eagle3Reader(path) as reader:
        states = reader.encode(features)
        found, after = reader.decode(tokens[1:], states[:-1], first=1)
    with torch.no_grad():
        ours = small_head.fc(torch.from_numpy(features))
        after_ours, logits = small_head.read(torch.tensor([tokens[1:]]), ours[None, :-1])
    assert np.abs(ours.numpy() - states).max() < 1e-3
    assert np.abs(after_ours[0].numpy() - after).max() < 1e-3
    columns = small_head.d2t.numpy()
    assert np.abs(logits[0].numpy() - found[:, columns]).max() < 1e-3
    others = np.setdiff1d(np.arange(SHAPE.n_vocab), columns)
    assert np.isneginf(found[:, others]).all()


def test_steps_of_training_are_steps_of_drafting(small_head: Eagle3Head) -> None:
    n, n_steps = 9, 4
    tokens = torch.tensor([TOKENS[:n]])
    features = torch.randn(1, n, SHAPE.n_features, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        trained = list(small_head.steps(tokens, features, n_steps))
        true = small_head.fc(features[:, :-1])
        for r in range(n - n_steps):  # a chain behind the row of token r + 1
            states, last = true[:, : r + 1], None
            for i in range(n_steps):
                after, _ = small_head.read(tokens[:, 1 : r + 2 + i], states)
                last = after[:, -1:]
                assert torch.allclose(last[0, 0], trained[i][0, r], atol=1e-4), (r, i)
                states = torch.cat((states, last), 1)


# ---- the loss and the acceptance


def test_the_loss_is_the_cross_entropy_where_the_teacher_lists_everything() -> None:
    generator = torch.Generator().manual_seed(6)
    logits = torch.randn(2, 3, 8, generator=generator, requires_grad=True)
    teacher = torch.randn(2, 3, 8, generator=generator).log_softmax(-1)
    log_p, ids = teacher.topk(8)
    mask = torch.ones(2, 3, dtype=torch.bool)
    exact = -(teacher.exp() * logits.log_softmax(-1)).sum(-1).mean()
    assert losses.soft_loss(logits, ids, log_p, mask).item() == pytest.approx(exact.item(), abs=1e-4)
    # The bucket of unlisted tokens joins terms, which can only make the sum smaller.
    few = losses.soft_loss(logits, ids[..., :3], log_p[..., :3], mask)
    assert few.item() < exact.item()
    # No model is better than the teacher itself.
    own = losses.soft_loss(teacher, ids[..., :3], log_p[..., :3], mask)
    nudged = losses.soft_loss(teacher + 0.1 * torch.randn(8, generator=generator), ids[..., :3], log_p[..., :3], mask)
    assert own.item() < nudged.item()


def test_tokens_without_a_column_ask_for_nothing() -> None:
    logits = torch.randn(1, 2, 4, requires_grad=True)
    ids = torch.tensor([[[-1, -1], [2, -1]]])
    log_p = torch.log(torch.tensor([[[0.6, 0.4], [0.5, 0.5]]]))
    loss = losses.soft_loss(logits, ids, log_p, torch.ones(1, 2, dtype=torch.bool))
    loss.backward()
    assert loss.item() == pytest.approx(-logits[0, 1].log_softmax(-1)[2].item(), abs=1e-4)
    assert logits.grad is not None and torch.isfinite(logits.grad).all() and not logits.grad[0, 0].any()


@pytest.mark.parametrize("right", ["", "1", "0110111", "11111111", "101101110111"])
def test_runs_are_counted_as_by_hand(right: str) -> None:
    hit = [c == "1" for c in right]
    n = max(0, len(hit) - 3 + 1)
    chains = [hit[i : i + 3] for i in range(n)]
    assert runs(hit, 3) == Acceptance(n, tuple(sum(all(c[: d + 1]) for c in chains) for d in range(3)))


def test_shares_are_of_those_that_were_right_before() -> None:
    a = Acceptance(10, (8, 4, 1)) + Acceptance(10, (8, 4, 3))
    assert a.by_position == [0.8, 0.5, 0.5]
    assert a.mean_length == pytest.approx(1 + (16 + 8 + 4) / 20)


# ---- rows stand where they belong


def batch_of(tokens: list[int], n_given: int) -> Batch:
    """A text whose teacher is sure of the token behind each row."""
    t = torch.tensor([tokens, [*tokens[:-4], 0, 0, 0, 0]])
    following = torch.cat((t[:, 1:], torch.zeros(2, 1, dtype=torch.int64)), 1)
    return Batch(
        tokens=t,
        lengths=torch.tensor([len(tokens), len(tokens) - 4]),
        n_given=torch.tensor([n_given, n_given]),
        features=torch.zeros(2, len(tokens), 1, dtype=torch.bfloat16),
        top_ids=following[..., None],
        top_log_p=torch.zeros(2, len(tokens), 1),
    )


class Clairvoyant:
    """In place of a head: it knows the token behind each chain, or the one behind that."""

    shape = SimpleNamespace(n_vocab=50)
    d2t = torch.arange(50)

    def __init__(self, off_by: int = 0) -> None:
        self._off_by = off_by

    def steps(self, tokens: Any, features: Any, n_steps: int) -> Any:
        for i in range(n_steps):
            yield losses.shifted(tokens, 2 + i + self._off_by)[:, : tokens.shape[1] - 1, None]

    def logits(self, states: Any) -> Any:
        return 30.0 * torch.nn.functional.one_hot(states[..., 0], 50).float()


def test_a_head_that_is_right_has_no_loss_and_one_that_is_a_row_late_has() -> None:
    batch = batch_of(list(range(1, 21)), n_given=6)
    right, late = (HeadTask(Clairvoyant(off_by), 3) for off_by in (0, 1))
    found = right.acceptance(batch)
    # Chains predict tokens 6 ... of 20 and of 16, three each.
    assert found == Acceptance(12 + 8, (20, 20, 20))
    assert late.acceptance(batch).n_right == (0, 0, 0)
    assert float(right.loss(batch)) < 2.0  # the last row of a text has a teacher and no token behind it
    assert float(late.loss(batch)) > 20.0


@pytest.mark.full
def test_the_target_as_its_own_draft_is_always_right(tmp_path: Path) -> None:
    with torch.no_grad():
        model = draft.read_llama(ModelFile(TARGET))
        text = TOKENS[:4]
        while len(text) < 40:
            text.append(int(model(torch.tensor([text]))[0, -1].argmax()))
        ids, log_p = best(logits_of(TARGET, text), 4096)
        batch = Batch(
            torch.tensor([text]), torch.tensor([40]), torch.tensor([4]), None,
            torch.from_numpy(ids)[None].long(), torch.from_numpy(log_p)[None],
        )  # fmt: skip
        task = DraftTask(model)
        found, loss = task.acceptance(batch), float(task.loss(batch))
    assert found.n == 36 - 4
    assert found.mean_length > 5.9  # the file's weights are the same; rounding may turn a tie
    p = np.exp(log_p.astype(np.float64))
    entropy = -(p * log_p).sum(-1).mean()
    assert loss == pytest.approx(entropy, abs=0.02)


def test_a_plan_counts_the_parameters_that_there_are() -> None:
    from duo.options.validate import train_head_options
    from duo.train.plan import DeviceSpeed, plan_of
    from duo.train.sizes import TargetShape

    o = train_head_options({"n_embd": 64, "n_head": 4, "n_head_kv": 2, "n_ff": 96, "rows": 1024})
    plan = plan_of(TargetShape.of(ModelFile(TARGET)), o, head=True, speed=DeviceSpeed(1e12, 1e10))
    made = sum(p.numel() for p in Eagle3Head(SHAPE).parameters())
    assert plan.n_products == SHAPE.n_products
    assert plan.n_parameters == pytest.approx(made, rel=0.01) and made == SHAPE.n_parameters


def test_a_shape_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadValueError, match="no token_embd"):
        head.new_head(dataclasses.replace(SHAPE, n_vocab=5000), ModelFile(TARGET), np.zeros(5000), 1)
    with pytest.raises(BadValueError, match="has 4096 tokens and the target 5"):
        draft.read_llama(ModelFile(DRAFT), 5)
    assert math.isfinite(SHAPE.n_parameters)
