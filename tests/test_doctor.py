"""`duo doctor`, `duo devices`, and the choice of CPU kernels that is measured once and remembered."""

import json
from pathlib import Path
from typing import Any

import pytest

from duo import Duo, DuoError, _core, doctor, kernels
from duo.cli.main import main
from duo.demo import demo_pair

TARGET, DRAFT = map(str, demo_pair())
needs_kernels = pytest.mark.skipif(not kernels.available(), reason="no instruction set that duo has kernels for")


@pytest.fixture
def no_memory_of_races(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels.duo_is_faster.cache_clear()
    return tmp_path


@needs_kernels
def test_a_race_is_run_once_and_remembered(no_memory_of_races: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raced = []
    speeds = {"q8_0": (2.0, 1.0), "q4_K": (1.0, 2.0)}

    def race(kind: str, width: int, threads: int, us: int) -> tuple[float, float]:
        raced.append((kind, width))
        return speeds[kind]

    monkeypatch.setattr(_core, "race", race)
    for _ in range(2):
        assert kernels.duo_is_faster("q8_0", 1)
        assert not kernels.duo_is_faster("q4_K", 1)
        kernels.duo_is_faster.cache_clear()  # as another process would
    assert raced == [("q8_0", 1), ("q8_0", 4), ("q4_K", 1), ("q4_K", 4)]
    assert sorted(json.loads(kernels.cache_file().read_text()).values()) == [False, True]


@needs_kernels
@pytest.mark.parametrize("damage", ["", "[]", "{", '{"x": 1}', "\0"])
def test_a_damaged_record_is_measured_anew(no_memory_of_races: Path, damage: str) -> None:
    kernels.cache_file().parent.mkdir(parents=True)
    kernels.cache_file().write_text(damage)
    known = kernels.duo_is_faster("q8_0", 1)
    assert known in json.loads(kernels.cache_file().read_text()).values()


@needs_kernels
def test_a_record_that_cannot_be_written_does_no_harm(no_memory_of_races: Path) -> None:
    (no_memory_of_races / "duo").write_text("a file where the folder should be")
    assert kernels.duo_is_faster("q8_0", 1) in (True, False)


@needs_kernels
def test_the_choice_of_kernels_is_the_users() -> None:
    for choice, n in (("stock", 0), ("duo", 29)):
        with Duo(TARGET, n_ctx=256, cpu_kernels=choice) as d:
            assert (d.target.n_duo_products, d.target.n_cpu_products) == (n, 29)
            assert d.target.same_bits == (n > 0)
    with Duo(TARGET, n_ctx=256, cpu_kernels="duo", override_tensor="ffn_up=CPU,attn_q=CPU") as d:
        assert d.target.n_duo_products == 29 - 8
        assert not d.target.same_bits
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
def test_what_is_no_row_of_weights_is_refused() -> None:
    for kind, n_bytes, n_columns in (("q8_0", 33, 32), ("q8_0", 0, 64), ("q4_K", 144, 128), ("q8_0", 68, -64)):
        with pytest.raises(DuoError, match="these are no rows"):
            _core.product_errors(kind, bytes(n_bytes), n_columns, 1)
    with pytest.raises(DuoError, match="there are no CPU kernels for weights of type q9_9; choose from"):
        _core.product_errors("q9_9", bytes(64), 64, 1)


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
    assert any("same bits at widths 1 to 16 with 1 and 3 threads" in s for s in r["verdict"])


def test_doctor_finds_the_widths_at_which_stock_kernels_differ(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--cpu-kernels", "stock", "-t", "2"]) == 0
    out = capsys.readouterr().out
    assert "Stock kernels are used" in out
    # Behind 512 tokens stock attention adds in another order for one row than for two.
    assert "Logits differ from one row's at widths" in out


@pytest.mark.parametrize("command", ["doctor", "devices"])
def test_their_mistakes_are_one_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    wrong: dict[str, list[list[Any]]] = {
        "doctor": [["-m", "nowhere.gguf"], ["-m", __file__], ["-t", "0"], ["--cpu-kernels", "x"]],
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
