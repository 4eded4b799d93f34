"""`duo make-draft`: real quantisation and real measurements on the demo target, the choice of layers, failures."""

import ctypes
import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import EXACT
from gguf_files import I32, STR, rewrite
from tiny_models import tiny
from waits import HANG_S, wait_until

from duo import BadValue, Duo, DuoError
from duo.cli import made_draft
from duo.cli.commands import make_draft as command
from duo.make_draft import candidates, make, quantize, quantize_child
from duo.make_draft.candidates import Found, Wish
from duo.make_draft.layers import LayerSearch, Score, SilencedCopy, droppable, why_not
from duo.make_draft.make import Asked, Made, make_draft
from duo.make_draft.measure import Bench, Figures
from duo.make_draft.quantize import Quantizer
from duo.make_draft.recipe import Recipe, Source, parse_types, step_bytes
from duo.models.demo import demo_pair
from duo.models.header import read_header

TARGET = demo_pair()[0]
PROMPTS = ("Once upon a time there was a dog.", "Lily had a red ball.")
ENGINE: dict[str, Any] = {"n_ctx": 256, "n_ctx_draft": 256, "n_threads": 1, "n_threads_draft": 1, **EXACT}
Run = Callable[..., tuple[int, str, str]]


def asked(out: Path, target: Path = TARGET, **other: Any) -> Asked:
    wish = Wish(other.pop("types", ("q4_0",)), other.pop("n_layers", None), other.pop("tries_layers", False), 5.0)
    return Asked(str(target), out, wish, PROMPTS, 32, ENGINE, **{"force": True, **other})


def quantizer(target: Path) -> Quantizer:
    return Quantizer(Source(read_header(target)), 1)


def bench(target: Path, progress: Callable[[str], None] = lambda _: None) -> Bench:
    return Bench(str(target), ENGINE, PROMPTS, 32, progress)


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo target; what layer 2 adds is zero."""
    to = tmp_path_factory.mktemp("identity") / "target.gguf"
    adds = ("blk.2.attn_output.weight", "blk.2.ffn_down.weight")
    return rewrite(TARGET, to, weights=lambda name, x: np.zeros_like(x) if name in adds else x)


# ---- the quantiser


@pytest.mark.parametrize("ours", ["Params", "KvOverride", "TensorOverride"])
def test_the_childs_structures_are_those_of_llama_h(ours: str) -> None:
    import llama_cpp

    theirs = {
        "Params": llama_cpp.llama_model_quantize_params,
        "KvOverride": llama_cpp.llama_model_kv_override,
        "TensorOverride": llama_cpp.llama_cpp.llama_model_tensor_override,
    }[ours]
    mine: Any = getattr(quantize_child, ours)
    assert ctypes.sizeof(mine) == ctypes.sizeof(theirs)
    places = [[getattr(kind, f[0]).offset for f in kind._fields_] for kind in (mine, theirs)]
    assert places[0] == places[1]


def test_a_quantised_target_gets_fewer_bits_and_fewer_layers(tmp_path: Path) -> None:
    out = tmp_path / "draft.gguf"
    seen: list[tuple[int, int]] = []
    recipe = Recipe(type="q4_0", left_out=(2,))
    said = quantizer(TARGET).size_of(recipe)
    quantizer(TARGET).write(recipe, out, lambda done, of: seen.append((done, of)))
    h, whole = read_header(out), read_header(TARGET)
    assert (h.n_layer, whole.n_layer) == (3, 4)
    assert h.weight_type == "q4_0" and whole.weight_type == "q8_0"
    assert abs(said - sum(t.n_bytes for t in h.tensors)) < 0.01 * said
    assert seen and seen[-1][0] <= seen[-1][1] and [d for d, _ in seen] == sorted(d for d, _ in seen)


def test_layers_that_are_left_out_leave_the_others_as_they_were(tmp_path: Path) -> None:
    out = tmp_path / "draft.gguf"
    quantizer(TARGET).write(Recipe(left_out=(1,)), out)
    h, whole = read_header(out), read_header(TARGET)

    def weights(header: Any, layer: int) -> list[bytes]:
        parts = [t for t in header.tensors if t.layer == layer]
        data = Path(header.path).read_bytes()
        return [data[t.offset : t.offset + t.n_bytes] for t in sorted(parts, key=lambda t: t.name)]

    for mine, its in ((0, 0), (1, 2), (2, 3)):
        assert weights(h, mine) == weights(whole, its)


def test_a_type_that_needs_an_importance_matrix_is_left_out_with_a_line(tmp_path: Path) -> None:
    wide = tiny("qwen2moe", TARGET, tmp_path / "wide.gguf")  # its width suits the type
    with pytest.raises(quantize.NeedsMatrix, match="importance matrix"):
        quantizer(wide).write(Recipe(type="iq2_xxs"), tmp_path / "draft.gguf")
    assert [p.name for p in tmp_path.iterdir()] == ["wide.gguf"]


def test_a_disk_that_is_full_leaves_no_file(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))  # writing fails behind a megabyte
    try:
        with pytest.raises(DuoError, match="the disk is full, so a draft could not be written; free some space"):
            make_draft(asked(tmp_path / "draft.gguf"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_seen_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantize.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(DuoError, match=r"5 MB are needed to try a draft and 0 MB are free; free some space"):
        make_draft(asked(tmp_path / "draft.gguf"))
    assert list(tmp_path.iterdir()) == []


# ---- layers


def test_a_layer_that_does_nothing_is_left_out_first(identity: Path, tmp_path: Path) -> None:
    b = bench(identity)
    with Duo(identity, temperature=0.0, **{k: v for k, v in ENGINE.items() if "draft" not in k}) as d:
        for prompt in PROMPTS:
            given = d.tokenize(prompt, special=True)
            b.ends = [i for i in range(d.target.n_vocab) if d.target.is_end(i)]
            b.texts.append(([*given, *d.generate(prompt, max_tokens=32, ignore_eos=True).tokens], len(given)))
    copy = SilencedCopy(identity, tmp_path / "copy.gguf")

    def score(left_out: tuple[int, ...]) -> Score:
        copy.silence(left_out)
        return b.score(copy.path)

    whole = score(())
    assert whole.by_position[0] == 1.0  # the target is right about itself
    search = LayerSearch(
        droppable(read_header(identity), 4), score, lambda s, _: s.mean_length, ends=time.monotonic() + HANG_S
    )
    assert search.chosen(1) == (2,)
    alone = {t.left_out: t.score for t in search.trials}
    assert alone[(2,)] == whole  # leaving it out costs nothing
    assert alone[(1,)].mean_length < whole.mean_length


def test_layers_come_back_when_they_are_no_longer_silent(tmp_path: Path) -> None:
    copy = SilencedCopy(TARGET, tmp_path / "copy.gguf")
    whole = copy.path.read_bytes()
    copy.silence((1, 2))
    assert copy.path.read_bytes() != whole
    copy.silence((1,))
    one = copy.path.read_bytes()
    copy.silence((2,))
    copy.silence((1,))
    assert copy.path.read_bytes() == one != whole
    copy.silence(())
    assert copy.path.read_bytes() == whole


def fake_score(costs: dict[int, float]) -> Callable[[tuple[int, ...]], Score]:
    def score(left_out: tuple[int, ...]) -> Score:
        length = 5.0 - sum(costs[i] for i in left_out)
        return Score((length / 5,), length, 0.0)

    return score


COSTS = {1: 0.5, 2: 0.1, 3: 0.9, 4: 0.01, 5: 0.7, 6: 0.3}


@pytest.mark.parametrize("n, best", [(1, (4,)), (2, (2, 4)), (3, (2, 4, 6)), (6, (1, 2, 3, 4, 5, 6))])
def test_the_layers_that_cost_least_are_chosen(n: int, best: tuple[int, ...]) -> None:
    search = LayerSearch(tuple(COSTS), fake_score(COSTS), lambda s, _: 0.0, ends=time.monotonic() + HANG_S)
    assert search.chosen(n) == best


def test_auto_leaves_out_as_many_layers_as_pay() -> None:
    # A layer is worth 0.25 and costs what COSTS says.
    def worth(score: Score, left_out: Sequence[int]) -> float:
        return score.mean_length + 0.25 * len(left_out)

    search = LayerSearch(tuple(COSTS), fake_score(COSTS), worth, ends=time.monotonic() + HANG_S)
    assert search.chosen(None) == (2, 4)
    assert max(len(t.left_out) for t in search.trials) == 4  # it ends two rounds later
    assert search.spread(None) == (2, 4, 6)
    assert search.spread(2) == (2, 5)


def test_without_time_nothing_is_tried() -> None:
    search = LayerSearch(tuple(COSTS), fake_score(COSTS), lambda s, _: 0.0, ends=time.monotonic())
    assert search.chosen(None) is None and search.spread(None) is None and search.trials == []
    assert search.spread(3) == (2, 4, 6)


@pytest.mark.parametrize("name, why", [("nemotron_h", "a value for each layer"), ("qwen3next", "2 layers")])
def test_layers_stay_where_their_order_means_something(tmp_path: Path, name: str, why: str) -> None:
    h = read_header(tiny(name, TARGET, tmp_path / "model.gguf"))
    assert why in why_not(h, h.n_trunk)


def test_layers_stay_that_a_header_lists(tmp_path: Path) -> None:
    listed = rewrite(TARGET, tmp_path / "listed.gguf", put={"llama.feed_forward_length": (I32, [896] * 4)})
    assert "llama.feed_forward_length" in why_not(read_header(listed), 4)
    assert why_not(read_header(TARGET), 4) == ""
    with pytest.raises(BadValue, match="--keep-layers 3 is not possible: its header has a value for each layer"):
        make_draft(asked(tmp_path / "draft.gguf", listed, n_layers=3, tries_layers=True))


@pytest.mark.parametrize("name", ["smollm3", "smallthinker", "nanbeige"])
def test_layers_stay_whose_number_means_something(name: str) -> None:
    assert why_not(replace(read_header(TARGET), architecture=name), 4).endswith("depends on its number")


def test_the_parts_of_a_split_target_do_not_stay_in_one_file(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the folder would need room for three targets."""
    told(1.5, FAST)
    files: list[set[str]] = []

    def whole(self: candidates.Workshop) -> Path:
        path = next(tmp_path.glob(".duo-*")) / "whole.gguf"
        shutil.copyfile(TARGET, path)
        return path

    def figures(_: Bench, path: Path, __: str) -> Figures:
        files.append({p.name for p in path.parent.iterdir()})
        return Figures((0.8,), 10.0, 5.0, 1.5, 2)

    monkeypatch.setattr(Bench, "figures", figures)
    monkeypatch.setattr(candidates.Workshop, "_whole", whole)
    monkeypatch.setattr(LayerSearch, "chosen", lambda *_: (2,))
    monkeypatch.setattr(LayerSearch, "spread", lambda *_: None)
    make_draft(asked(tmp_path / "draft.gguf", types=(), tries_layers=True))
    assert files == [{"whole.gguf"}, {"0.gguf"}]


def test_a_step_reads_no_embedding_and_no_layer_that_is_gone() -> None:
    h = read_header(TARGET)
    embedding = next(t.n_bytes for t in h.tensors if t.name == "token_embd.weight")
    layer = sum(t.n_bytes for t in h.tensors if t.layer == 2)
    assert step_bytes(h) == sum(t.n_bytes for t in h.tensors) - embedding
    assert step_bytes(h, (2,)) == step_bytes(h) - layer


# ---- figures and the file


@pytest.mark.full
def test_a_made_draft_writes_the_targets_text(tmp_path: Path) -> None:
    out = tmp_path / "draft.gguf"
    said: list[str] = []
    made = make_draft(asked(out, types=("q4_0", "q2_k"), n_layers=3, tries_layers=True, progress=said.append))
    assert made.written == out and out.is_file() and list(tmp_path.iterdir()) == [out]
    best = made.best
    assert best is not None and best.n_bytes == out.stat().st_size
    names = [c.name for c in made.found.candidates]
    assert names[0] == "q4_0" and names[1:] and all("3 of 4 layers" in n for n in names[1:])
    assert {x.name: x.why for x in made.found.left_out}["q2_k"].startswith("it would be the same as q4_0")
    assert best.figures.expected == max(c.figures.expected for c in made.found.candidates)
    assert all(0 < a <= 1 for c in made.found.candidates for a in c.figures.acceptance)
    assert all(c.figures.pass_ms > 0 and c.figures.step_ms > 0 for c in made.found.candidates)
    assert set(made.measured) == {"plain", f"sync {best.figures.n_draft}", "async auto", "plain alone"}
    assert made.found.n_trials and any("is layer" in line for line in said)
    options: dict[str, Any] = {"max_tokens": 48, "temperature": 0.0}
    with Duo(TARGET, out, **ENGINE) as pair:
        plain = [pair.generate(p, mode="plain", **options).text for p in PROMPTS]
        for mode in ("sync", "async"):
            texts = [pair.generate(p, mode=mode, n_draft=3, **options) for p in PROMPTS]
            assert [t.text for t in texts] == plain
        assert sum(t.timings["draft_n_accepted"] for t in texts) > 0


def test_the_acceptance_of_a_draft_that_is_the_target_is_1() -> None:
    b = bench(TARGET)
    figures = b.figures(TARGET, "itself")
    assert figures.acceptance[0] == 1.0
    assert b.alone_ms is not None and figures.alone_ms == b.alone_ms > 0 and figures.kept <= 1
    assert set(b.pass_ms) >= {1, 2, 3} and len(b.texts) == len(PROMPTS)
    for tokens, n_given in b.texts:
        assert len(tokens) == n_given + 32
    assert b.score(TARGET).by_position[0] == 1.0  # the texts are read as they were written


def test_the_expected_speed_is_the_formulas() -> None:
    b = bench(TARGET)
    b.pass_ms = {1: 10.0, 2: 10.0, 3: 10.0, 5: 10.0}
    f = b.expecting(Figures((0.5,), 10.0, 1.0))
    assert f.c == 0.1
    by_length = {k: sum(0.5**i for i in range(k + 1)) / (1 + 0.1 * k) for k in range(1, 5)}
    assert f.n_draft == max(by_length, key=lambda k: by_length[k])
    assert f.expected == pytest.approx(by_length[f.n_draft])
    assert b.expecting(replace(f, at_once=True)).expected == pytest.approx(sum(0.5**i for i in range(5)))


@pytest.mark.parametrize("alone_ms, kept", [(5.0, 0.5), (10.0, 1.0), (12.0, 1.0)])
def test_a_draft_that_displaces_the_target_is_worth_less(alone_ms: float, kept: float) -> None:
    b = bench(TARGET)
    b.pass_ms = {1: 10.0, 2: 10.0, 3: 10.0, 5: 10.0}
    f = Figures((0.5,), 10.0, 1.0)
    beside = b.expecting(f)
    alone = b.expecting(replace(f, alone_ms=alone_ms))
    assert (alone.expected, alone.n_draft, alone.c) == (pytest.approx(kept * beside.expected), beside.n_draft, f.c)


@pytest.mark.full
def test_experts_get_fewer_bits_and_fewer_of_them_are_used(tmp_path: Path) -> None:
    mixture = tiny("qwen2moe", TARGET, tmp_path / "mixture.gguf")
    source = Source(read_header(mixture))
    assert source.n_experts > 1
    out = tmp_path / "draft.gguf"
    Quantizer(source, 1).write(Recipe("q4_0", experts_type="q2_k", n_experts=1), out)
    h = read_header(out)
    assert h.values["qwen2moe.expert_used_count"] == 1
    experts = {t.type for t in h.tensors if "_exps" in t.name and t.shape[0] % 256 == 0}
    assert experts == {"q2_K"}
    found = make_draft(asked(tmp_path / "made.gguf", mixture)).found
    tried = {c.name for c in found.candidates} | {x.name for x in found.left_out}
    assert any(f"{source.n_experts // 2} of {source.n_experts} experts" in name for name in tried)


@pytest.mark.full
def test_mtp_layers_stay_behind(tmp_path: Path) -> None:
    target = tiny("glm4moe", TARGET, tmp_path / "target.gguf", n_mtp=1)
    out = tmp_path / "draft.gguf"
    quantizer(target).write(Recipe("q4_0"), out)
    h, whole = read_header(out), read_header(target)
    assert whole.n_mtp == 1 and h.n_mtp == 0 and h.n_layer == h.n_trunk == whole.n_trunk
    with Duo(out, n_ctx=64) as d:
        assert d.generate("a", max_tokens=2, ignore_eos=True).tokens


# ---- what is written, and when


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, dict[str, float]], None]:
    """Says what measurements find: an expected speed, and tokens/s."""

    def tell(expected: float, measured: dict[str, float]) -> None:
        figures = Figures((0.8,), 10.0, 5.0, expected, 2)
        monkeypatch.setattr(Bench, "figures", lambda *_: figures)
        monkeypatch.setattr(Bench, "raced", lambda *_: measured)

    return tell


FAST, SLOW = {"plain": 10.0, "sync 2": 15.0}, {"plain": 10.0, "sync 2": 9.0}
DISPLACES = {"plain": 10.0, "sync 2": 15.0, "plain alone": 16.0}  # it takes the target's room on the GPU


@pytest.mark.parametrize(
    "expected, measured, force, written",
    [
        (1.5, FAST, False, True),
        (0.9, FAST, False, True),  # the race decides
        (0.9, SLOW, False, False),
        (1.5, SLOW, False, False),
        (0.9, SLOW, True, True),
        (1.5, DISPLACES, False, False),
    ],
)
def test_a_draft_is_written_if_it_pays_or_if_asked(
    told: Any, tmp_path: Path, run: Run, expected: float, measured: dict[str, float], force: bool, written: bool
) -> None:
    told(expected, measured)
    out = tmp_path / "draft.gguf"
    line = ["make-draft", "-m", TARGET, "-o", out, "--types", "q4_0", "--keep-layers", "all"]
    code, table, err = run(*line, *["--force"] * force)
    assert code == (not written) and out.exists() == written
    assert "q4_0 *" in table and f"{expected:.2f}" in table
    pays = measured is FAST
    assert ("pays here" in err) == pays and ("does not pay here" in err) != pays
    assert ("such a draft may pay where" in err) != pays
    assert ("nothing was written" in err) != written and "Traceback" not in err
    assert set(tmp_path.iterdir()) == ({out} if written else set())


@pytest.mark.parametrize("force", [False, True])
def test_a_draft_whose_race_fails_does_not_pay(
    told: Any, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    def fails(*_: Any) -> None:
        raise DuoError("no memory for both")

    told(1.5, FAST)
    monkeypatch.setattr(Bench, "raced", fails)
    out = tmp_path / "draft.gguf"
    line = ["make-draft", "-m", TARGET, "-o", out, "--types", "q4_0", "--keep-layers", "all", "--json"]
    code, text, err = run(*line, *["--force"] * force)
    found = json.loads(text)
    assert (found["pays"], found["gain"], found["race_failed"]) == (False, None, "no memory for both")
    assert code == (not force) and out.exists() == force
    assert "the race failed (no memory for both), so a draft made of the target does not pay here" in err


def test_the_figures_as_json(told: Any, tmp_path: Path, run: Run) -> None:
    told(1.5, FAST)
    out = tmp_path / "draft.gguf"
    code, text, _ = run("make-draft", "-m", TARGET, "-o", out, "--types", "q4_0,f16", "--keep-layers", "all", "--json")
    found = json.loads(text)
    assert code == 0 and found["written"] == str(out) and found["measured"] == FAST and found["pays"]
    assert found["candidates"][0]["name"] == found["best"] == "q4_0" and found["candidates"][0]["c"] == 0.5
    assert {x["name"] for x in found["not_measured"]} >= {"f16"}  # it is larger than the target


def test_a_file_that_exists_is_replaced_only_with_force(told: Any, tmp_path: Path, run: Run) -> None:
    told(1.5, FAST)
    real, out = tmp_path / "real.gguf", tmp_path / "draft.gguf"
    real.write_text("mine")
    out.symlink_to(real)
    line = ["make-draft", "-m", TARGET, "-o", out, "--types", "q4_0", "--keep-layers", "all"]
    code, _, err = run(*line)
    assert code == 1 and "exists already" in err and real.read_text() == "mine"
    code, _, _ = run(*line, "--force")
    assert code == 0 and out.is_symlink() and read_header(real).n_layer == 4


def test_a_file_that_appears_meanwhile_stays(
    told: Any, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(1.5, FAST)
    out = tmp_path / "draft.gguf"

    def raced(*_: Any) -> dict[str, float]:
        out.write_text("mine")
        return FAST

    monkeypatch.setattr(Bench, "raced", raced)
    code, _, err = run("make-draft", "-m", TARGET, "-o", out, "--types", "q4_0", "--keep-layers", "all")
    assert code == 1 and "appeared meanwhile" in err and out.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    "place, error", [("here.gguf", "exists already"), ("missing/x.gguf", "cannot be a file there")]
)
def test_a_place_that_cannot_be_used_is_told_before_a_download(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: str
) -> None:
    (tmp_path / "here.gguf").write_text("mine")
    monkeypatch.setattr(command, "chosen_models", lambda _: pytest.fail("it would download"))
    code, _, err = run("make-draft", "-hf", "someone/something", "-o", tmp_path / place)
    assert code == 1 and error in err and err.count("\n") == 1


def test_what_is_said_if_nothing_can_be_made() -> None:
    assert made_draft.verdict(Made(Found())) == "no draft could be made of this target"


@pytest.mark.parametrize(
    "more, error",
    [
        (["--types", "q9_z"], "--types has the unknown type 'q9_z'"),
        (["--types", ","], "--types is empty"),
        (["--keep-layers", "1"], "--keep-layers 1 is not possible here; give 2 to 3"),
        (["--keep-layers", "4"], "--keep-layers 4 is not possible here; give 2 to 3"),
        (["--keep-layers", "x"], "--keep-layers 'x' is no number of layers"),
        (["--types", "none", "--keep-layers", "all"], "leave nothing to make"),
        (["-o", "missing/draft.gguf"], "missing/draft.gguf: cannot be a file there"),
        (["-o", str(TARGET)], "is the target itself"),
        (["--prompts", "missing.txt"], "missing.txt"),
        (["-m", "missing.gguf"], "missing.gguf"),
        (["-m", __file__], "not a GGUF file"),
        (["-m", str(TARGET.with_name("duo-demo-eagle3-q8_0.gguf"))], "is an EAGLE-3 head"),
        (["--draft-host", "somewhere:1"], "--draft-host"),
    ],
)
def test_mistakes_are_one_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    line = [] if "-m" in more else ["-m", TARGET]
    code, out, err = run("make-draft", *line, *([] if "-o" in more else ["-o", "draft.gguf"]), *more)
    assert (code, out) == (1, "") and error in err and err.count("\n") == 1 and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_target_has_to_be_named(run: Run, tmp_path: Path) -> None:
    code, _, err = run("make-draft", "-o", tmp_path / "draft.gguf")
    assert code == 1 and "-m is missing" in err


def test_a_damaged_target_is_one_sentence(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    broken = folder / "broken.gguf"
    broken.write_bytes(TARGET.read_bytes()[:5_000_000])
    code, _, err = run("make-draft", "-m", broken, "-o", tmp_path / "draft.gguf")
    assert code == 1 and str(broken) in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [folder]


def test_a_file_of_an_unknown_kind_is_one_sentence(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    foreign = rewrite(TARGET, folder / "foreign.gguf", put={"general.architecture": (STR, "nonsense")})
    line = ["make-draft", "-m", foreign, "-o", tmp_path / "draft.gguf"]
    code, _, err = run(*line, "--keep-layers", "all")
    assert code == 1 and str(foreign) in err and "unknown model architecture: 'nonsense'" in err
    assert err.count("\n") == 1 and list(tmp_path.iterdir()) == [folder]


def test_types_are_read_as_llama_quantize_names_them() -> None:
    assert parse_types(" Q4_0,q3_K, q4_0") == ("q4_0", "q3_k")
    assert parse_types("none") == ()


@pytest.mark.full
def test_ctrl_c_while_a_file_is_written_leaves_nothing(tmp_path: Path) -> None:
    big = tmp_path / "models" / "target.gguf"
    big.parent.mkdir()
    shutil.copyfile(TARGET, big)
    line = [sys.executable, "-m", "duo", "make-draft", "-m", str(big), "-o", str(tmp_path / "draft.gguf"), "-n", "512"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: process.poll() is not None or list(tmp_path.glob(".duo-*/*.gguf")), "no file is written")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130 and b"Traceback" not in err
    assert [p.name for p in tmp_path.iterdir()] == ["models"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_kill_and_a_closed_terminal_leave_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    number = getattr(signal, name)
    monkeypatch.setattr(Bench, "figures", lambda *_: signal.raise_signal(number))
    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores it
    try:
        code, _, _ = run("make-draft", "-m", TARGET, "-o", tmp_path / "draft.gguf", "--types", "q4_0")
        assert code == 130 and list(tmp_path.iterdir()) == []
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("at", ["write", "figures"])
def test_ctrl_c_anywhere_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(*{"write": (Quantizer, "write"), "figures": (Bench, "figures")}[at], interrupt)
    with pytest.raises(KeyboardInterrupt):
        make.make_draft(asked(tmp_path / "draft.gguf"))
    assert list(tmp_path.iterdir()) == []


def test_drafts_that_cannot_be_measured_are_named_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def figures(self: Bench, draft: Path, name: str) -> Figures:
        if name == "q4_0":
            raise DuoError("no memory for it")
        return Figures((0.8,), 10.0, 5.0, 1.5, 2)

    monkeypatch.setattr(Bench, "figures", figures)
    monkeypatch.setattr(Bench, "raced", lambda *_: FAST)
    made = make_draft(asked(tmp_path / "draft.gguf", types=("q4_0", "q4_1")))
    assert [(x.name, x.why) for x in made.found.left_out] == [("q4_0", "no memory for it")]
    assert made.written and read_header(made.written).weight_type == "q4_1"
    with pytest.raises(DuoError, match="no memory for it"):
        make_draft(asked(tmp_path / "other.gguf"))
    assert [p.name for p in tmp_path.iterdir()] == ["draft.gguf"]


def test_drafts_without_different_layers_are_different_drafts(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(1.5, FAST)
    monkeypatch.setattr(LayerSearch, "chosen", lambda *_: (2,))
    monkeypatch.setattr(LayerSearch, "spread", lambda *_: (1,))
    found = make_draft(asked(tmp_path / "draft.gguf", types=(), tries_layers=True)).found
    assert [c.name for c in found.candidates] == ["3 of 4 layers (without 2)", "3 of 4 layers (without 1)"]


def test_only_what_there_is_time_for_is_tried(told: Any, tmp_path: Path) -> None:
    told(1.5, FAST)
    wish = Wish(("q4_0", "q4_1"), None, True, 0.0)
    found = make_draft(replace(asked(tmp_path / "draft.gguf"), wish=wish)).found
    assert [c.name for c in found.candidates] == ["q4_0"]
    why = {x.name: x.why for x in found.left_out}
    assert why["q4_1"] == "time was up (--minutes)" and "before a layer was tried" in why[candidates.FEWER_LAYERS]
