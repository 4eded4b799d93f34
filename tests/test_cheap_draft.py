"""Drafts that compute with fewer bits and fewer tokens than their files have. The text stays the target's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Races
from gguf import dequantize
from gguf_files import header_of, write
from model_files import N_PRODUCTS, TOKENS, Shape, options, random_model, run
from sizes import mostly_daily
from tiny_models import tiny

from duo import BadValueError, Duo, _core
from duo.gguf_tools.whole_file import CheckedGgufReader
from duo.models.demo import demo_pair
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement import kernels, packing, profiles
from duo.placement import place as placement

TARGET, DRAFT = demo_pair()
WIDE = list(packing.WIDE)
PROMPTS = ("Once upon a time", "The king said to his daughter that", "def main():\n    ")

pytestmark = pytest.mark.skipif(not kernels.available(), reason="no instruction set that duo has kernels for")


def packed(path: Path, stored: str = "q4_0", types: Sequence[str] = WIDE, **more: Any) -> _core.Probe:
    o = options(path)
    o.packing = (stored, list(types))
    for name, value in more.items():
        setattr(o, name, value)
    return _core.Probe(o, is_draft=True)


def near(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """Correlation of two sets of logits."""
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


KINDS, STORED = ("q8_0", "q5_0", "q6_K", "f16", "f32"), ("q4_0", "iq4_nl")
ARCHITECTURES = ("llama", "gemma", "mixtral")  # gemma: tied embeddings; mixtral: experts


# Each type becomes each other one; which matrices there are is another matter.
@pytest.mark.full
@pytest.mark.parametrize(
    ("architecture", "kind", "stored"),
    mostly_daily(
        product(ARCHITECTURES, KINDS, STORED),
        [
            *product(("llama",), ("q8_0", "q6_K", "f16"), ("q4_0",)),
            ("gemma", "q8_0", "q4_0"),
            ("mixtral", "f16", "iq4_nl"),
        ],
    ),
)
def test_packed_weights_compute_almost_the_same(tmp_path: Path, architecture: str, kind: str, stored: str) -> None:
    path = random_model(tmp_path / "m.gguf", architecture, kind)
    p = packed(path, stored)
    assert p.packed_as == stored and p.n_duo_products == p.n_cpu_products == N_PRODUCTS
    logits = run(p, 20, 1, 4)
    assert 0.9 < near(logits, run(_core.Probe(options(path)), 20, 1, 4)) < 1.0
    if architecture != "mixtral":  # stock kernels compute the routers of experts
        again = run(packed(path, stored), 1, 4, 20)
        assert np.array_equal(again, logits), "the bits do not depend on the width"


def test_what_does_not_suit_the_type_stays(tmp_path: Path) -> None:
    """Rows of 96 columns are not whole units; other matrices of the same file are packed."""
    path = random_model(tmp_path / "m.gguf", "llama", "q8_0", Shape(n_embd=256, n_ff=96))
    p = packed(path)
    assert (p.n_duo_products, p.n_cpu_products, p.packed_as) == (N_PRODUCTS - 2, N_PRODUCTS, "q4_0")
    assert near(run(p, 20), run(_core.Probe(options(path)), 20)) > 0.9


def test_matrices_of_recurrent_layers_stay(tmp_path: Path) -> None:
    """All else is in F32 here, which is not packed."""
    source = tiny("mamba", DRAFT, tmp_path / "source.gguf")
    tensors = [
        (t.name, t.data, t.tensor_type)
        if t.name.endswith((".ssm_in.weight", ".ssm_out.weight"))
        else (t.name, dequantize(t.data, t.tensor_type), None)
        for t in CheckedGgufReader(source).tensors
    ]
    path = write(tmp_path / "m.gguf", header_of(source), tensors)
    p = packed(path, types=["q8_0"])
    assert p.packed_as == "" and p.n_duo_products >= 4
    assert packed(source, types=["q8_0"]).packed_as == "q4_0"


@pytest.mark.parametrize("output", ["wide", "plain"])
@pytest.mark.parametrize("wide", ["q8_0", "f32"])
def test_packed_and_plain_weights_stay_apart(tmp_path: Path, output: str, wide: str) -> None:
    """The output matrix is loaded first, so its memory is the first one of duo's that libllama asks for."""
    of_output, of_layers = (wide, "q4_0") if output == "wide" else ("q4_0", wide)
    path = random_model(tmp_path / "m.gguf", "llama", lambda name: of_output if name == "output.weight" else of_layers)
    found = {}
    for types in ([], [wide], [wide, "q4_0"]):
        o = options(path)
        o.cpu_types, o.packing = ["q4_0", "q8_0"], ("iq4_nl", types)
        found[len(types)] = run(_core.Probe(o, is_draft=True), 20)
    assert not np.array_equal(found[0], found[1]) and not np.array_equal(found[1], found[2])
    assert near(found[0], found[1]) > near(found[0], found[2]) > 0.9


def test_bytes_are_counted_as_they_are_kept(tmp_path: Path) -> None:
    path = random_model(tmp_path / "m.gguf", "llama", "q8_0")
    before = _core.cpu_weight_bytes(str(path), 0)
    after = _core.cpu_weight_bytes(str(path), 0, ("q4_0", WIDE))
    assert set(before) == {"q8_0"} and set(after) == {"q4_0"}
    assert after["q4_0"] * 34 == before["q8_0"] * 18


def test_a_shortlist_leaves_the_logits_of_its_tokens_as_they_are(tmp_path: Path) -> None:
    for architecture in ("llama", "gemma"):
        path = random_model(tmp_path / f"{architecture}.gguf", architecture, "q8_0")
        whole = _core.Probe(options(path), is_draft=True)
        listed = packed(path, "", draft_vocab=1024)
        assert listed.n_proposed < whole.n_proposed == whole.n_vocab
        tokens = [t for t in TOKENS if t < 1024][:30]
        rows = []
        for p in (whole, listed):
            p.decode(tokens)
            rows.append(p.logits())
        kept = np.isfinite(rows[1])
        assert np.array_equal(rows[0][kept], rows[1][kept]) and np.all(rows[1][~kept] == -np.inf)
        assert kept[:, :1024].all() and kept[0].sum() == listed.n_proposed < 1400


def test_tokens_of_the_text_join_the_shortlist(tmp_path: Path) -> None:
    p = packed(random_model(tmp_path / "m.gguf", "llama", "q8_0"), "", draft_vocab=1024)
    p.decode([7] * 100 + [3001])
    assert np.isfinite(p.logits()[-1][3001])


def test_a_text_of_other_tokens_does_without_the_list(tmp_path: Path) -> None:
    p = packed(random_model(tmp_path / "m.gguf", "llama", "q8_0"), "", draft_vocab=512)
    p.decode(list(range(2000, 2000 + 16 * 20, 16)))
    assert np.isfinite(p.logits()).all()


CHEAP: list[dict[str, Any]] = [
    {"draft_pack": "q4_0"},
    {"draft_pack": "iq4_nl", "draft_vocab": 512},
    {"draft_vocab": 64},
]


@pytest.mark.full
@pytest.mark.parametrize("cheap", mostly_daily(CHEAP, CHEAP[-1:]), ids=str)
def test_the_text_is_the_targets_with_any_of_it(cheap: dict[str, Any]) -> None:
    with Duo(TARGET, n_ctx=256, cpu_kernels="duo") as d:
        plain = [d.generate(p, max_tokens=40, temperature=t, seed=3).tokens for p in PROMPTS for t in (0, 0.8)]
    with Duo(TARGET, DRAFT, n_ctx=256, cpu_kernels="duo", **cheap) as d:
        assert d.draft is not None
        assert d.draft.packed_as == cheap.get("draft_pack", "")
        assert (d.draft.n_proposed < d.draft.n_vocab) == ("draft_vocab" in cheap)
        accepted = 0
        for mode in ("sync", "async"):
            found = []
            for prompt in PROMPTS:
                for t in (0, 0.8):
                    found.append(d.generate(prompt, max_tokens=40, temperature=t, seed=3, mode=mode, n_draft=4).tokens)
                    accepted += d.timings["draft_n_accepted"]
            assert found == plain, mode
        assert accepted > 30, "the draft was of no use, so nothing was tested"


@pytest.mark.parametrize("rule", mostly_daily(["rejection", "typical"], ["rejection"]))
def test_a_shortlist_suits_the_other_rules_and_filters(rule: str) -> None:
    how: dict[str, Any] = {"temperature": 0.9, "accept": rule, "mode": "sync", "n_draft": 3, "max_tokens": 60}
    with Duo(TARGET, DRAFT, n_ctx=256, draft_vocab=256, cpu_kernels="duo") as d:
        for more in ({}, {"top_n_sigma": 1.0}, {"typical_p": 0.9}, {"repeat_penalty": 1.2, "top_k": 0, "top_p": 1.0}):
            d.generate(PROMPTS[0], seed=1, **how, **more)
            assert d.timings["draft_n_accepted"] > 0, more


def test_the_first_line_says_it(run: Callable[..., tuple[int, str, str]]) -> None:
    pair = ("-m", TARGET, "-md", DRAFT, "--cpu-kernels", "duo", "-n", 1, "-p", "Hi")
    code, _, err = run(*pair, "--draft-pack", "q4_0", "--draft-vocab", 1024)
    assert code == 0 and "packed as Q4_0, 1," in err and " tokens" in err
    code, _, err = run(*pair)
    assert code == 0 and "packed" not in err


def test_a_type_that_weights_cannot_become_is_refused() -> None:
    with pytest.raises(BadValueError, match=r"draft_pack|draft-pack"):
        engine_options({"draft_pack": "q2_K"})


def placed(path: Path, **said: Any) -> _core.EngineOptions:
    o = engine_options({"device": "none", "device_draft": "none", **said})
    return placement.place(ModelOptions.of(o, "target", str(TARGET)), ModelOptions.of(o, "draft", str(path)))[0]


def test_a_large_draft_is_packed_by_default_and_the_target_never(
    tmp_path: Path, races: Races, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = random_model(tmp_path / "m.gguf", "llama", lambda name: "q5_0" if "attn" in name else "q8_0")
    assert placed(path).draft.packing == ("", []), "too small for it to matter"
    monkeypatch.setattr(packing, "SMALL", 1000)
    p = placed(path)
    stored, types = p.draft.packing
    assert stored in packing.BITS and set(types) == {"q5_0", "q8_0"} and p.target.packing == ("", [])
    for said in ({"draft_pack": "off"}, {"cpu_kernels": "stock"}):
        assert placed(path, **said).draft.packing == ("", []), said


@pytest.mark.parametrize("how", [{"strict": True}, {"cpu_kernels": "duo"}], ids=str)
def test_nothing_is_raced_where_the_kernels_are_given(
    how: dict[str, Any], no_memory_of_races: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under --strict ggml is not set up before the model is loaded, and a race would use it."""

    def race(*_: Any) -> Any:
        raise AssertionError("a race")

    monkeypatch.setattr(_core, "race", race)
    monkeypatch.setattr(packing, "SMALL", 1000)
    o = ModelOptions.of(engine_options(how), "draft", str(DRAFT))
    assert packing.cheap_draft(o, [1])[0] == ("iq4_nl", ["q8_0"])


def test_a_profile_belongs_to_what_the_draft_computes_with() -> None:
    keys = {profiles.key(placed(DRAFT, **said)) for said in ({}, *CHEAP)}
    assert len(keys) == 1 + len(CHEAP)


def test_heads_and_layers_of_the_target_are_left_alone() -> None:
    o = engine_options({"draft_pack": "q4_0", "draft_vocab": 512})
    m = ModelOptions.of(o, "target", str(TARGET))
    assert packing.cheap_draft(m, [1]) == (packing.NONE, 0)
