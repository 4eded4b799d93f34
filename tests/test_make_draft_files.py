"""`duo make-draft`: the files of drafts, and what is measured of them."""

import ctypes
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_drafts import ENGINE, PROMPTS, TARGET, Run, asked, bench, quantizer
from tiny_models import tiny
from trained_files import MIXTURE
from waits import HANG_S, wait_until

from duo import Duo, DuoError
from duo.make_draft import make, quantize, quantize_child
from duo.make_draft.make import make_draft
from duo.make_draft.measure import Bench, Figures
from duo.make_draft.quantize import Quantizer
from duo.make_draft.recipe import DraftRecipe, TargetSource, step_bytes
from duo.models.header import read_header
from duo.placement import profiles


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
    recipe = DraftRecipe(type="q4_0", left_out=(2,))
    said = quantizer(TARGET).size_of(recipe)
    quantizer(TARGET).write(recipe, out, lambda done, of: seen.append((done, of)))
    h, whole = read_header(out), read_header(TARGET)
    assert (h.n_layer, whole.n_layer) == (3, 4)
    assert h.weight_type == "q4_0" and whole.weight_type == "q8_0"
    assert abs(said - sum(t.n_bytes for t in h.tensors)) < 0.01 * said
    assert seen and seen[-1][0] <= seen[-1][1] and [d for d, _ in seen] == sorted(d for d, _ in seen)


def test_layers_that_are_left_out_leave_the_others_as_they_were(tmp_path: Path) -> None:
    out = tmp_path / "draft.gguf"
    quantizer(TARGET).write(DraftRecipe(left_out=(1,)), out)
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
        quantizer(wide).write(DraftRecipe(type="iq2_xxs"), tmp_path / "draft.gguf")
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


def test_a_step_reads_no_embedding_and_no_layer_that_is_gone() -> None:
    h = read_header(TARGET)
    embedding = next(t.n_bytes for t in h.tensors if t.name == "token_embd.weight")
    layer = sum(t.n_bytes for t in h.tensors if t.layer == 2)
    assert step_bytes(h) == sum(t.n_bytes for t in h.tensors) - embedding
    assert step_bytes(h, (2,)) == step_bytes(h) - layer


@pytest.mark.daily  # test_make_draft writes drafts; the next test measures one
@pytest.mark.full
def test_a_made_draft_writes_the_targets_text(tmp_path: Path) -> None:
    out = tmp_path / "draft.gguf"
    said: list[str] = []
    made = make_draft(asked(out, types=("q4_0", "q2_k"), n_layers=3, tries_layers=True, progress=said.append))
    assert made.written == out and out.is_file() and list(tmp_path.iterdir()) == [out]
    best = made.best
    assert best is not None and best.n_bytes == out.stat().st_size
    names = [c.name for c in made.results.candidates]
    assert names[0] == "q4_0" and names[1:] and all("3 of 4 layers" in n for n in names[1:])
    assert {x.name: x.why for x in made.results.left_out}["q2_k"].startswith("it would be the same as q4_0")
    assert best.figures.expected == max(c.figures.expected for c in made.results.candidates)
    assert all(0 < a <= 1 for c in made.results.candidates for a in c.figures.acceptance)
    assert all(c.figures.pass_ms > 0 and c.figures.step_ms > 0 for c in made.results.candidates)
    assert set(made.measured) == {"plain", f"sync {best.figures.n_draft}", "async auto", "plain alone"}
    assert made.results.n_trials and any("is layer" in line for line in said)
    options: dict[str, Any] = {"max_tokens": 48, "temperature": 0.0}
    with Duo(TARGET, out, **ENGINE) as pair:
        plain = [pair.generate(p, mode="plain", **options).text for p in PROMPTS]
        for mode in ("sync", "async"):
            texts = [pair.generate(p, mode=mode, n_draft=3, **options) for p in PROMPTS]
            assert [t.text for t in texts] == plain
        assert sum(t.timings["draft_n_accepted"] for t in texts) > 0


def test_the_acceptance_of_a_draft_that_is_the_target_is_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUO_PROFILES", raising=False)
    monkeypatch.setattr(profiles, "cache_file", lambda: tmp_path / "pairs.json")
    b = bench(TARGET)
    figures = b.figures(TARGET, "itself")
    assert not profiles.cache_file().exists(), "a draft of make-draft is temporary"
    assert figures.acceptance[0] == 1.0
    assert b.alone_ms is not None and figures.alone_ms == b.alone_ms > 0 and figures.share_left <= 1
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


@pytest.mark.daily
@pytest.mark.full
def test_experts_get_fewer_bits_and_fewer_of_them_are_used(tmp_path: Path) -> None:
    mixture = tiny("qwen2moe", TARGET, tmp_path / "mixture.gguf")
    source = TargetSource(read_header(mixture))
    assert source.n_experts > 1
    out = tmp_path / "draft.gguf"
    Quantizer(source, 1).write(DraftRecipe("q4_0", experts_type="q2_k", n_experts=1), out)
    h = read_header(out)
    assert h.values["qwen2moe.expert_used_count"] == 1
    experts = {t.type for t in h.tensors if "_exps" in t.name and t.shape[0] % 256 == 0}
    assert experts == {"q2_K"}
    found = make_draft(asked(tmp_path / "made.gguf", mixture)).results
    tried = {c.name for c in found.candidates} | {x.name for x in found.left_out}
    assert any(f"{source.n_experts // 2} of {source.n_experts} experts" in name for name in tried)


@pytest.mark.daily
@pytest.mark.full
def test_mtp_layers_stay_behind(tmp_path: Path) -> None:
    out = tmp_path / "draft.gguf"
    quantizer(MIXTURE).write(DraftRecipe("q4_0"), out)
    h, whole = read_header(out), read_header(MIXTURE)
    assert whole.n_mtp == 1 and h.n_mtp == 0 and h.n_layer == h.n_trunk == whole.n_trunk
    with Duo(out, n_ctx=64) as d:
        assert d.generate("a", max_tokens=2, ignore_eos=True).tokens


@pytest.mark.daily
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


@pytest.mark.parametrize("minutes", ["nan", "inf"])
def test_no_limit_is_no_time(minutes: str, tmp_path: Path, run: Run) -> None:
    code, out, err = run("make-draft", "-m", TARGET, "-o", tmp_path / "d.gguf", "--minutes", minutes)
    assert (code, out) == (1, "") and f"{minutes} is no finite number" in err
