"""Models of each kind whose file a packed one has replaced: draft heads, MTP layers, models that see. And what was kept
of a model belongs to its packed file, too."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import needs_kernels
from kept_text import PROMPT
from mtp_models import foreseeing, mtp_part, trunk_part
from packed_files import target as target
from packed_files import whole_file
from vision_models import png, projector

from duo import Duo
from duo.gguf_tools.random_head import RandomHeadShape, random_head
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.placement import model_hash, packed

pytestmark = [needs_kernels, pytest.mark.full]

LOAD: dict[str, Any] = {"n_ctx": 512, "cpu_kernels": "duo"}
N_EMBD = read_header(demo_pair()[0]).n_embd
LISTED = RandomHeadShape(n_embd=192, n_ff=256, n_draft_vocab=512)
BORROWING = RandomHeadShape(n_embd=N_EMBD, n_ff=256, own_embedding=False, own_output=False)


def packed_away(model: Path) -> Path:
    file = whole_file(model)
    model.unlink()
    return file


def guessed(target: Path, draft: Path | None, **more: Any) -> tuple[tuple[int, ...], int, int]:
    """The text, the number of guesses and of the right ones."""
    with SwitchedDuo(target, draft, always=True, **LOAD, **more) as d:
        assert d.draft is not None and d.draft.head
        r = d.generate("Once upon a time", max_tokens=24, mode="sync", n_draft=4, temperature=0.8, seed=3)
        assert not r.warning
        return r.tokens, r.timings["draft_n"], r.timings["draft_n_accepted"]


@pytest.mark.parametrize("shape", [LISTED, BORROWING], ids=["d2t", "the target's matrices"])
def test_a_draft_head(shape: RandomHeadShape, target: Path, tmp_path: Path) -> None:
    head = tmp_path / "head.gguf"
    random_head(target, head, seed=2, shape=shape)
    expected = guessed(target, head)
    assert expected[1] > 0
    assert guessed(packed_away(target), packed_away(head)) == expected


def test_mtp_layers(tmp_path: Path) -> None:
    whole = foreseeing("hy_v3", demo_pair()[1], tmp_path / "whole.gguf")
    head, trunk = mtp_part(whole, tmp_path / "mtp.gguf"), trunk_part(whole, tmp_path / "trunk.gguf")
    own: dict[str, Any] = {"spec_type": "draft-mtp"}
    expected = guessed(whole, None, **own)
    assert expected[2] > 0  # right ones
    assert guessed(trunk, head) == expected
    assert guessed(packed_away(whole), None, **own) == guessed(packed_away(trunk), packed_away(head)) == expected


def test_a_model_that_sees(target: Path, tmp_path: Path) -> None:
    eye = projector(tmp_path / "mmproj.gguf", "mlp", N_EMBD)

    def said(model: Path, seed: int) -> tuple[int, ...]:
        with Duo(model, mmproj=eye, **LOAD) as d:
            prompt = "Once upon a time <__media__> there was"
            return d.generate(prompt, images=[png(seed=seed)], max_tokens=16, temperature=0, ignore_eos=True).tokens

    expected = said(target, 1)
    file = packed_away(target)
    assert said(file, 1) == expected != said(file, 2)


# ---- what was kept


def test_states_and_prompt_caches_go_on(target: Path, tmp_path: Path) -> None:
    cache = tmp_path / "p.cache"
    with Duo(target, **LOAD) as d:
        n = len(d.tokenize(PROMPT))
        expected = d.generate(PROMPT, max_tokens=8, temperature=0, prompt_cache=cache).tokens
        state = d.save_state()
    file = packed_away(target)
    for from_file in (True, False):
        with Duo(file, **LOAD) as d:
            if not from_file:
                d.load_state(state)
            r = d.generate(PROMPT, max_tokens=8, temperature=0, prompt_cache=cache if from_file else None)
            assert (r.tokens, r.timings["cache_n"], r.warning) == (expected, n - 1, "")


def test_what_was_learned_of_a_pair_goes_on(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DUO_PROFILES", raising=False)
    draft = Path(shutil.copy(demo_pair()[1], tmp_path / "draft.gguf"))
    keys = []
    for pack_target, pack_draft in ((False, False), (True, False), (False, True)):
        target = packed_away(target) if pack_target else target
        draft = packed_away(draft) if pack_draft else draft
        with Duo(target, draft, **LOAD) as d:
            keys.append(d.profile_key)
    assert keys[0] and keys == keys[:1] * 3


def test_a_model_is_told_by_what_is_in_its_file(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = model_hash.model_hash(str(target))
    assert own == packed.source_of(str(target)) == model_hash.model_hash(str(whole_file(target)))
    monkeypatch.setattr(model_hash, "TOO_NEW_S", 0.0)
    hashed: list[object] = []
    real = model_hash.file_hash
    monkeypatch.setattr(model_hash, "file_hash", lambda path: (hashed.append(path), real(path))[1])
    copy = Path(shutil.copy(target, tmp_path / "copy.gguf"))
    for _ in range(2):
        assert model_hash.model_hash(str(copy)) == own
    assert len(hashed) == 1
    shutil.copyfile(demo_pair()[1], copy)
    assert model_hash.model_hash(str(copy)) != own and len(hashed) == 2
