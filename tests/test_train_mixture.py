"""The mixture that tools/demo_mixture.py trains: llama.cpp computes the same, it begins near the demo target, and a run
goes from texts to a file."""

from __future__ import annotations

import json
import lzma
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from model_files import TOKENS, options
from mtp_models import mtp_part
from needs import need_torch
from prompts import LONG

from duo import Duo, _core
from duo.models.demo import demo_pair
from duo.models.header import read_header

torch = need_torch()

from duo.train.draft import read_llama  # noqa: E402
from duo.train.gguf_out import read_card  # noqa: E402
from duo.train.mixture import Experts, Mixture, MixtureShape, experts_of  # noqa: E402
from duo.train.mixture_file import write_mixture  # noqa: E402
from duo.train.mtp import MtpLayer  # noqa: E402
from duo.train.target_file import ModelFile  # noqa: E402
from duo.train.upcycling import begun, upcycled  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import demo_mixture  # type: ignore[import-not-found]  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.daily]

TARGET = demo_pair()[0]


@pytest.fixture(scope="module")
def texts() -> torch.Tensor:
    with Duo(TARGET, n_ctx=256) as d:
        return torch.tensor([d.tokenize(text)[:200] for text in LONG])


@pytest.fixture(scope="module")
def mixture(texts: torch.Tensor) -> Mixture:
    dense = read_llama(ModelFile(TARGET))
    return upcycled(dense, MixtureShape(**asdict(dense.shape), **demo_mixture.EXPERTS), texts, 1).eval()


def probe(path: Path, *, mtp: bool = False, is_head: bool = False) -> _core.Probe:
    o = options(path, ())
    o.type_k = o.type_v = "f32"
    o.flash_attn = "off"
    o.mtp = mtp
    return _core.Probe(o, is_draft=is_head)


def test_llama_cpp_computes_the_mixture_and_its_mtp_layer(
    mixture: Mixture, texts: torch.Tensor, tmp_path: Path
) -> None:
    layer = MtpLayer(mixture)
    begun(layer, texts)
    layer.eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for e in [*experts_of(mixture), *experts_of(layer)]:
            e.bias.copy_(0.1 * torch.randn(16, generator=generator))
    path, tokens = tmp_path / "mixture.gguf", TOKENS[:48]
    write_mixture(path, mixture, layer, ModelFile(TARGET), "f32", {})
    p = probe(path, mtp=True)
    p.decode(tokens)
    head = probe(mtp_part(path, tmp_path / "mtp.gguf"), is_head=True)
    head.decode(tokens[1:], 1, head.encode(p.features()[:-1]))
    with torch.no_grad():
        states = mixture.states(torch.tensor([tokens]))
        ours = mixture.output(states)[0].numpy()
        of_layer = layer.logits(next(layer.steps(torch.tensor([tokens]), states, 1)))[0].numpy()
        for e in experts_of(mixture):
            e.bias.zero_()
    assert np.abs(ours - p.logits()).max() < 1e-3
    assert np.abs(states[0].numpy() - p.features()).max() < 1e-3
    assert np.abs(of_layer - head.logits()).max() < 1e-3


def test_it_begins_near_the_dense_model(mixture: Mixture, texts: torch.Tensor) -> None:
    with torch.no_grad():
        dense = read_llama(ModelFile(TARGET))(texts)
        same = (mixture(texts).argmax(-1) == dense.argmax(-1)).float().mean()
    assert same > 0.5


def test_experts_are_chosen_and_get_equal_loads(mixture: Mixture) -> None:
    s = mixture.sizes
    e = Experts(s)
    x = torch.randn(400, s.n_embd, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        e.router.weight.copy_(0.02 * torch.randn(16, s.n_embd, generator=torch.Generator().manual_seed(3)))
        e.router.weight[0] += 0.05 * x.mean(0)
        e.bias[:2] = torch.tensor([0.5, -0.5])  # one too often, one never
        weights = e.weights(x)
        assert (weights > 0).sum(-1).eq(s.n_used).all()
        assert torch.allclose(weights.sum(-1), torch.tensor(float(s.n_used)))
        spread = []
        for _ in range(600):
            e.load.zero_()
            e.weights(x)
            spread.append(float((e.load / e.load.mean()).std()))
            e.balance()
    assert spread[-1] < 0.3 * spread[0]


@pytest.mark.slow
def test_a_run_from_texts_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs, out = tmp_path / "docs.json.xz", tmp_path / "out.gguf"
    docs.write_bytes(lzma.compress(json.dumps([["tale", str(i), LONG[i % 5] * 2] for i in range(100)]).encode()))
    args = ["--tokens", "1000", "--mtp-tokens", "600", "--minutes", "0.001", "--mtp-minutes", "0.001", "--threads", "1"]
    monkeypatch.setattr(demo_mixture, "N_COMPARED", 8)
    monkeypatch.setattr(sys, "argv", ["demo_mixture.py", str(docs), str(out), *args])
    demo_mixture.main()
    card, h = read_card(out), read_header(str(out))
    assert card is not None and h.n_mtp == 1 and h.n_trunk == 4
    assert [len(shares) for shares in card["balance"]] == [16, 16, 16]
    assert sum(card["balance"][0]) == pytest.approx(16, abs=0.2)
    assert {"training", "acceptance", "recipe"} == card["mtp"].keys()
    with Duo(out, n_ctx=256, spec_type="draft-mtp") as d:
        assert len(d.generate("Once upon a time", max_tokens=16, temperature=0, ignore_eos=True).tokens) == 16
