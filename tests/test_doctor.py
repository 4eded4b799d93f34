"""`duo doctor`, `duo devices`, and the choice of CPU kernels that is measured once and remembered."""

import itertools
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import Races

from duo import Duo, DuoError, _core
from duo.benchmark import doctor
from duo.cli.main import main
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.placement import kernels

TARGET, DRAFT = map(str, demo_pair())
needs_kernels = pytest.mark.skipif(not kernels.available(), reason="no instruction set that duo has kernels for")


@needs_kernels
def test_a_race_is_run_once_and_its_times_are_remembered(races: Races) -> None:
    for _ in range(2):
        assert kernels.duo_is_faster("q8_0", [1], 1, drafted=True)
        assert not kernels.duo_is_faster("q4_K", [1], 1, drafted=True)
        assert not kernels.duo_is_faster("q4_K", [1], 1, drafted=False)
        kernels.RACED.clear()  # as another process would
    assert races == [("q8_0", [1]), ("q4_K", [1])]
    kept = json.loads(kernels.cache_file().read_text())
    assert [list(found["stock"].values()) for found in kept.values()] == 2 * [[1.0, 2.0, 3.0, 30.0]]
    assert kernels.duo_is_faster("q8_0", [2, 1], 2, drafted=True)
    assert races[2:] == [("q8_0", [2])]  # the team that was not raced yet


@needs_kernels
@pytest.mark.parametrize("n_quiet", [1, 99])
def test_a_race_beside_other_programs_is_run_again(races: Races, monkeypatch: pytest.MonkeyPatch, n_quiet: int) -> None:
    """Until one has the machine for itself, or four were run; the shortest times count."""
    race, n = _core.race, 0

    def disturbed(kind: str, widths: list[int], teams: list[int], us: int) -> Any:
        nonlocal n
        n += 1
        slow = 1.0 if n == 2 else 5.0
        return [(ahead, [(s, slow * d) for s, d in times]) for ahead, times in race(kind, widths, teams, us)]

    monkeypatch.setattr(_core, "race", disturbed)
    monkeypatch.setattr(kernels, "other_cores", lambda *_: 0.5 if n <= n_quiet else 0.1)
    chosen = []
    for _ in range(6):
        chosen.append(kernels.duo_is_faster("q8_0", [1], 1, drafted=True))
        kernels.duo_is_faster("q8_0", [1], 1, drafted=True)  # no race: this process has raced
        kernels.RACED.clear()  # as another process would
    assert chosen == [False] + 5 * [True]
    assert n == (2 if n_quiet == 1 else kernels.N_DISTURBED)


@needs_kernels
def test_the_choice_is_for_the_whole_text_and_all_teams(races: Races) -> None:
    assert not kernels.duo_is_faster("q6_K", [1], 1, drafted=False)  # 20% at one token, a third of the speed at prompts
    assert not kernels.duo_is_faster("q6_K", [1], 1, drafted=True)
    assert not kernels.duo_is_faster("bf16", [1], 1, drafted=False)  # width 4 pays for nobody without a draft
    assert kernels.duo_is_faster("bf16", [1], 1, drafted=True)
    assert kernels.duo_is_faster("f16", [1], 1, drafted=True)
    assert not kernels.duo_is_faster("f16", [1, 2], 1, drafted=True)


def test_stock_kernels_must_be_faster_by_a_twentieth() -> None:
    """Otherwise the choice, and with it the bits, would differ with and without a draft, and from race to race."""
    for stock, drafted in itertools.product((0.9, 0.94, 0.96, 1.04), (False, True)):
        speed = kernels.KernelSpeed(dict.fromkeys(kernels.WIDTHS, stock), dict.fromkeys(kernels.WIDTHS, 1.0), 0)
        assert speed.duo_is_faster(drafted=drafted) == (stock > 0.95)


@needs_kernels
def test_prompts_are_read_by_a_team_of_their_own(races: Races) -> None:
    """f16 is duo's for one thread and stock's for two, at every width."""
    assert kernels.duo_is_faster("f16", [1], 1, drafted=False)
    assert not kernels.duo_is_faster("f16", [2], 2, drafted=False)
    assert races == [("f16", [1]), ("f16", [2])]
    one, two = (
        kernels.KernelSpeed({1: 1.0, 64: 4.0}, {1: duo, 64: 4.0 * prompt}, 0) for duo, prompt in ((0.9, 9), (9, 0.9))
    )
    assert one.cost("duo", two, drafted=False) == pytest.approx(256 * 0.9 + 8 * 4 * 0.9)
    assert two.cost("stock", one, drafted=False) == 256 + 8 * 4
    kernels.duo_is_faster("q8_0", [1], 3, drafted=True)
    assert races[2:] == [("q8_0", [1, 3])]


@needs_kernels
def test_the_oldest_races_are_dropped(races: Races, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "N_RACES", 3)
    for n in range(1, 6):
        kernels.speed_of("q8_0", n)
    assert [key.split(" | ")[1] for key in json.loads(kernels.cache_file().read_text())] == [
        f"{n} threads" for n in (3, 4, 5)
    ]


@needs_kernels
@pytest.mark.parametrize("damage", ["", "[]", "{", '{"x": 1}', "\0"])
def test_a_damaged_record_is_measured_anew(races: Races, damage: str) -> None:
    kernels.cache_file().parent.mkdir(parents=True)
    kernels.cache_file().write_text(damage)
    assert kernels.duo_is_faster("q8_0", [1], 1, drafted=True)
    assert races == [("q8_0", [1])]


@needs_kernels
@pytest.mark.parametrize(
    "entry",
    [
        True,
        {},
        {"stock": {"1": 1.0}, "duo": {"1": 1.0}, "ahead": 0},
        {"stock": 1, "duo": 2, "ahead": 0},
        {"stock": {}, "duo": {}, "ahead": -1},
    ],
)
def test_a_damaged_entry_is_measured_anew(races: Races, entry: Any) -> None:
    kernels.duo_is_faster("q8_0", [1], 1, drafted=True)
    kept = json.loads(kernels.cache_file().read_text())
    kernels.cache_file().write_text(json.dumps(dict.fromkeys(kept, entry)))
    kernels.RACED.clear()
    assert kernels.duo_is_faster("q8_0", [1], 1, drafted=True)
    assert len(races) == 2
    assert json.loads(kernels.cache_file().read_text()) == kept


@needs_kernels
def test_a_record_that_cannot_be_written_does_no_harm(
    no_memory_of_races: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_memory_of_races / "duo").write_text("a file where the folder should be")
    told = []
    monkeypatch.setattr(_core, "read_ahead_of", lambda kind, n: told.append(kind))
    assert kernels.duo_is_faster("q8_0", [1], 1, drafted=True) in (True, False)
    kernels.read_ahead(["q8_0", "q4_0"], 1)
    assert told == ["q8_0"]


@needs_kernels
def test_a_race_times_every_width_for_every_team() -> None:
    one, two = kernels.measure("q4_0", [1, 2], race_us=1000)
    for speed in (one, two):
        assert list(speed.stock) == list(speed.duo) == list(kernels.WIDTHS)
        assert min(*speed.stock.values(), *speed.duo.values()) > 0
        assert speed.duo[64] > speed.duo[1]  # of the same matrix, though a part of it was timed
        assert speed.ahead >= 0
        assert all(times[a] <= times[b] for times in (speed.stock, speed.duo) for a, b in pairwise(kernels.WIDTHS))
    _core.read_ahead_of("q4_0", one.ahead)
    for wrong in (("q4_0", [], [1]), ("q4_0", [1], [0]), ("q4_0", [513], [1]), ("f64", [1], [1])):
        with pytest.raises(DuoError):
            _core.race(*wrong, 1000)
    with pytest.raises(DuoError):
        _core.read_ahead_of("f64", 0)


@needs_kernels
def test_the_choice_of_kernels_is_the_users() -> None:
    for choice, n in (("stock", 0), ("duo", 29)):
        with Duo(TARGET, n_ctx=256, cpu_kernels=choice) as d:
            assert (d.target.n_duo_products, d.target.n_cpu_products) == (n, 29)
            assert d.target.same_bits == (n > 0)
    with Duo(TARGET, n_ctx=256, cpu_kernels="duo", override_tensor="ffn_up=CPU,attn_q=CPU") as d:
        assert d.target.n_duo_products == 29 and d.target.same_bits  # the device, with its fastest kernels
    with pytest.raises(DuoError, match="cpu_kernels"):
        Duo(TARGET, cpu_kernels="fast")


def test_without_kernels_stock_ones_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "kernels", lambda: ("", "this processor has none"))
    with Duo(TARGET, n_ctx=256) as d:
        assert d.target.n_duo_products == 0
        assert d.generate("Once", max_tokens=4).tokens
    with pytest.raises(DuoError, match="cannot be used: this processor has none; leave out --cpu-kernels duo"):
        Duo(TARGET, n_ctx=256, cpu_kernels="duo")


def test_progress_goes_up_for_each_model_and_its_error_ends_the_loading() -> None:
    seen: list[tuple[str, float]] = []
    Duo(TARGET, DRAFT, n_ctx=256, progress=lambda path, share: seen.append((path, share))).close()
    assert [p for p, s in seen if s == 1.0] == [TARGET, DRAFT]
    assert all(0 <= s <= 1 for _, s in seen)

    def broken(path: str, share: float) -> None:
        raise KeyError(path)

    with pytest.raises(KeyError):
        Duo(TARGET, n_ctx=256, progress=broken)


@needs_kernels
def test_incomplete_rows_of_weights_are_refused() -> None:
    for kind, n_bytes, n_columns in (("q8_0", 33, 32), ("q8_0", 0, 64), ("q4_K", 144, 128), ("q8_0", 68, -64)):
        with pytest.raises(DuoError, match="the data is not a number of whole rows"):
            _core.product_errors(kind, bytes(n_bytes), n_columns, 1)
    with pytest.raises(DuoError, match="duo has no CPU kernels for weights of type q9_9; choose from"):
        _core.product_errors("q9_9", bytes(64), 64, 1)


@pytest.mark.daily
@pytest.mark.full
@needs_kernels
def test_doctor_finds_equal_bits_with_duos_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-m", TARGET, "-t", "3", "--cpu-kernels", "duo", "--json"]) == 0
    r = json.loads(capsys.readouterr().out)
    assert r["duo_types"] == ["q8_0"]
    assert r["differ"] == {"1": [], "3": []}
    assert r["accuracy"]["q8_0"]["duo"] < 1.1 * r["accuracy"]["q8_0"]["stock"] < 1e-3
    assert 0 <= r["divergence"] < 1e-2
    assert set(r["ms"]) == {"stock", "duo"}
    assert all(set(map(int, ms)) == set(doctor.SPEED_WIDTHS) for ms in r["ms"].values())
    assert any("equal, bit for bit, at widths 1 to 16 with 1 and 3 threads" in s for s in r["verdict"])


@pytest.mark.daily
@pytest.mark.full
def test_doctor_finds_the_widths_at_which_stock_kernels_differ(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--cpu-kernels", "stock", "-t", "2"]) == 0
    out = capsys.readouterr().out
    assert "duo uses stock kernels" in out
    # Behind 512 tokens stock attention adds in another order for one row than for two.
    assert "Logits differ from those of one row at widths" in out


@pytest.mark.parametrize("command", ["doctor", "devices"])
def test_mistakes_of_doctor_and_devices_are_one_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    wrong: dict[str, list[list[Any]]] = {
        "doctor": [["-m", "nowhere.gguf"], ["-m", __file__], ["-t", "0"], ["--cpu-kernels", "x"], ["-ngl", "9" * 4301]],
        "devices": [["--masure"]],
    }
    for args in wrong[command]:
        assert main([command, *args]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("duo: ")
        assert err.count("\n") == 1


def test_devices_names_the_cpu_and_its_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("CPU: ")
    assert f"CPU kernels: {'duo' if kernels.available() else 'stock'}" in out
    assert main(["devices", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [f"{d['name']}: " for d in told["devices"] if d["type"] == "cpu"] == ["CPU: "]
    assert (told["cpu_kernels"] or "") == kernels.available() and str(told["cores"]) + " cores" in out
    assert isinstance(told["trials"], dict) and "races" not in told


@needs_kernels
def test_devices_shows_every_race(
    races: Races, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_core, "kernel_types", lambda: ["q8_0", "q4_K", "bf16"])
    assert main(["devices", "--measure"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    verdicts = {line.split("│")[1].strip(): line.split("│")[-2].strip() for line in rows if "│" in line}
    assert verdicts == {"q8_0": "duo", "q4_K": "stock", "bf16": "duo with a draft"}
    assert main(["devices", "--measure", "--json"]) == 0
    races_told = json.loads(capsys.readouterr().out)["races"]
    assert {r["type"]: r["faster"] for r in races_told} == verdicts
    assert set(races_told[0]["duo"]) == {str(w) for w in kernels.WIDTHS}


def test_passes_of_a_mixture_are_compared_by_bytes_and_by_time() -> None:
    h = read_header(str(Path(__file__).parent / "data" / "mixture-target.gguf"))
    experts = {1: 4.0, 4: 8.0, 8: 16.0}
    reads = doctor.reads_of(h, experts, 16)
    assert reads[1] == 1 < reads[4] < 2  # attention is read once for all
    assert reads[8] - reads[4] == pytest.approx(2 * (reads[4] - 1))
    assert doctor.reads_of(replace(h, tensors=tuple(t for t in h.tensors if "_exps" in t.name)), experts, 16)[8] == 4
    r = doctor.Report("m", "p", "avx2", "", ["q8_0"], ["q8_0"], 1, 1, differ={1: []}, experts=experts, n_experts=16)
    r.reads, r.ms = reads, {"duo": {1: 2.0, 4: 3.0, 8: 5.0}}
    line = f"reads {reads[4]:.2f} times as many bytes as one over one token, and takes 1.50 times as long"
    assert any(line in sentence for sentence in doctor.verdict(r))
