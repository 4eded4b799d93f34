"""`duo tune`: the saved profile, what is advised and why, and the command on the demo pair."""

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sizes import mostly_daily

from duo import Duo, DuoError
from duo.benchmark.tune import BOUND, LENGTHS, tune
from duo.cli.main import main
from duo.models.demo import demo_pair
from duo.placement import profiles
from duo.placement.cpus import core_cpus

TARGET, DRAFT = map(str, demo_pair())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No pairs are known, and those saved here are not known to other tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DUO_PROFILES", raising=False)
    return profiles.cache_file()


def pair(**options: Any) -> Duo:
    return Duo(TARGET, DRAFT, **{"n_ctx": 256, "cpu_kernels": "stock", **options})


@pytest.fixture(scope="module")
def known() -> tuple[str, list[float]]:
    """The key of this pair, and its numbers."""
    with pair() as d:
        d.generate("Once upon a time", max_tokens=24, seed=1)
        return profiles.key(d.placed), d.engine.profile()


@pytest.fixture
def measured(known: tuple[str, list[float]]) -> list[float]:
    """Numbers of this pair, saved."""
    assert profiles.save(*known, "a note")
    return known[1]


# ---- profiles


def test_a_saved_profile_is_found_by_the_same_pair(measured: list[float]) -> None:
    assert any(measured)
    with pair() as d:
        assert d.engine.profile() == measured
    with pair(n_ctx=512) as d:  # the context is no part of it
        assert d.engine.profile() == measured
        assert d.generate("Once", max_tokens=8).tokens


OTHERS: list[dict[str, Any]] = [
    {"n_threads": 2, "n_threads_draft": 2},
    {"type_k": "q8_0"},
    {"type_v_draft": "q8_0"},
    {"strict": True},
    {"cpu_range": f"{core_cpus()[0]}-{core_cpus()[0]}"},
    {"n_gpu_layers_draft": 1},  # auto is none or all of them here
    {"device": "none"},
]


@pytest.mark.full
@pytest.mark.parametrize("other", mostly_daily(OTHERS, OTHERS[:2]))
def test_another_placement_does_not_find_it(measured: list[float], other: dict[str, Any]) -> None:
    with pair(n_threads=1, n_threads_draft=1) as d:
        profiles.save(profiles.key(d.placed), measured, "")
    with pair(**{"n_threads": 1, "n_threads_draft": 1, **other}) as d:
        assert not any(d.engine.profile())


def test_another_file_does_not_find_it(measured: list[float], tmp_path: Path) -> None:
    copy = tmp_path / "draft.gguf"
    shutil.copyfile(DRAFT, copy)
    options: dict[str, Any] = {"n_ctx": 256, "cpu_kernels": "stock"}
    with Duo(TARGET, copy, **options) as d:  # the same, elsewhere
        assert d.engine.profile() == measured
    shutil.copyfile(TARGET, copy)
    with Duo(TARGET, copy, **options) as d:
        assert not any(d.engine.profile())
        profiles.save(profiles.key(d.placed), measured, "")
    with Duo(TARGET, copy, **options) as d:
        assert d.engine.profile() == measured
    link = tmp_path / "link.gguf"
    link.symlink_to(DRAFT)
    with Duo(TARGET, link, **options) as d:  # the same file by another name
        assert d.engine.profile() == measured
    with Duo(TARGET, **options) as d:  # no pair
        assert not any(d.engine.profile())


@pytest.mark.parametrize("damage", mostly_daily(["", "[]", "{", "\0", "\xff", "[" * 100_000], ["{", "\xff"]))
def test_a_damaged_file_is_ignored_and_replaced(measured: list[float], cache: Path, damage: str) -> None:
    cache.write_bytes(damage.encode("latin-1"))
    with pair() as d:
        assert not any(d.engine.profile())
        assert profiles.save(profiles.key(d.placed), measured, "")
        assert profiles.load(profiles.key(d.placed)) == measured


RECORDS = [None, 1, [], {}, {"numbers": {}}, *({"numbers": x} for x in (1, ["x"], [None], [10**400]))]


@pytest.mark.parametrize("record", mostly_daily(RECORDS, [None, {"numbers": {}}, {"numbers": ["x"]}]))
def test_a_damaged_record_is_ignored(measured: list[float], cache: Path, record: Any) -> None:
    cache.write_text(json.dumps(dict.fromkeys(json.loads(cache.read_text()), record)))
    with pair() as d:
        assert not any(d.engine.profile())


@pytest.mark.parametrize("bad", mostly_daily([[1.0], [math.nan], [math.inf], [-1.0]], [[1.0], [math.nan]]))
def test_impossible_numbers_are_ignored(measured: list[float], bad: list[float]) -> None:
    with pair() as d:
        profiles.save(profiles.key(d.placed), bad * (1 if bad == [1.0] else len(measured)), "")
    with pair() as d:
        assert not any(d.engine.profile())


def test_profiles_can_be_switched_off(measured: list[float], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUO_PROFILES", "off")
    before = cache.read_bytes()
    with pair() as d:
        assert not any(d.engine.profile())
        assert not profiles.save(profiles.key(d.placed), measured, "")
    assert cache.read_bytes() == before


def test_the_oldest_pairs_are_dropped(cache: Path) -> None:
    for i in range(profiles.N_PAIRS):
        assert profiles.save(f"pair {i}", [float(i)], "")
    assert profiles.save("pair 0", [0.5], "")  # measured again: the newest now
    assert profiles.save("one more", [1.0], "")
    assert len(json.loads(cache.read_text())) == profiles.N_PAIRS
    assert profiles.load("pair 0") == [0.5]
    assert profiles.load("pair 1") is None
    assert profiles.load("one more") == [1.0]


def test_a_file_that_cannot_be_written_does_no_harm(cache: Path) -> None:
    cache.parent.parent.mkdir()
    cache.parent.write_text("a file where the folder should be")
    assert not profiles.save("a pair", [1.0], "")
    with pair() as d:
        assert not any(d.engine.profile())


# ---- the measurement and the command

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: Any) -> tuple[int, str, str]:
        code = main(["tune", *map(str, args)])
        return (code, *capsys.readouterr())

    return call


@pytest.mark.daily  # the command below, and test_kept_profiles
@pytest.mark.full
def test_the_demo_pair_is_tuned_and_starts_warm(cache: Path) -> None:
    told: list[str] = []
    with pair(seed=3, temperature=0.5, stop=["a"], mode="plain") as d:
        t = tune(d, ["Once upon a time", "The king", "word " * 500], told.append)
        numbers = d.engine.profile()
    assert set(t.pass_ms) <= {1, *(k + 1 for k in LENGTHS)} and {1, 2} <= set(t.pass_ms)
    assert all(ms > 0 for ms in (*t.pass_ms.values(), *t.step_ms.values(), t.step_alone_ms or 0))
    assert all(0 < a < 1 for a in t.acceptance)
    assert list(t.measured) == ["plain", f"sync {t.n_sync}", "async auto"]
    assert {"plain", "sync 1", f"sync {t.n_sync}", "async auto", BOUND} <= set(t.expected)
    assert t.expected[f"sync {t.n_sync}"] == max(s for name, s in t.expected.items() if name.startswith("sync"))
    assert t.advice.reasons and t.sharing.cpu
    assert t.saved == str(cache)
    assert told[0] == "plain decoding" and told[-1].startswith("the race, text 2 of 2")
    with pair() as d:
        assert d.engine.profile() == numbers


@pytest.mark.daily
@pytest.mark.full
def test_a_draft_that_never_pays_is_measured(cache: Path) -> None:
    with Duo(TARGET, TARGET, n_ctx=256, temperature=0, cpu_kernels="stock") as d:
        t = tune(d, ["Once upon a time"])
        assert not d.session.always
    assert {1, 2, 3, 5} <= set(t.pass_ms) and t.step_alone_ms and t.acceptance[0] > 0.8
    assert list(t.measured) == ["plain", f"sync {t.n_sync}", "async auto"]


def test_runs_that_cannot_be_tuned_are_refused() -> None:
    with Duo(TARGET, n_ctx=256) as d, pytest.raises(DuoError, match="there is no draft; give it with -md"):
        tune(d, ["Once"])
    with pair(n_ctx=96) as d, pytest.raises(DuoError, match="no prompt fits the context with 64 more tokens"):
        tune(d, ["word " * 50])


def test_the_command_says_what_to_run(run: Run, tmp_path: Path, cache: Path) -> None:
    where, prompts = tmp_path / "x.json", tmp_path / "prompts.txt"
    prompts.write_text("Once upon a time\r\n\nThe king\n")
    code, out, err = run(
        "-m", TARGET, "-md", DRAFT, "-c", 256, "-td", 1, "-f", prompts, "--temp", "0", "--ignore-eos", "--no-strict",
        "-l", "5+1", "-l", "6-1", "--json-file", where,
    )  # fmt: skip
    assert (code, err) == (0, "")
    found = json.loads(where.read_text())
    assert found["pass_ms"]["1"] > 0
    for word in ("v(n)", "nodes", "by level", "expected", "measured", "async auto", f"in {cache}"):
        assert word in out
    assert f"recommended: {found['command']}\n" in out
    given = f"duo -m {TARGET} -md {DRAFT} -c 256 -td 1 --no-strict --temp 0 -l 5+1 -l 6-1 --ignore-eos"
    if found["advice"]["with_draft"]:
        assert found["command"] == " ".join([given, *found["advice"]["flags"]])
    else:
        assert found["command"] == given.replace(str(DRAFT), "none").replace(" -td 1", "")
    assert all(reason in out for reason in found["advice"]["reasons"])
    assert found["saved"] == str(cache)
    assert len(json.loads(cache.read_text())) == 1


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["-m", TARGET], "no draft was given; give it with -md"),
        (["-md", DRAFT], "a draft was given without a target"),
        (["-m", "no.gguf", "-md", DRAFT], "there is no file no.gguf"),
        (["-f", "no/such"], "the prompt file no/such cannot be read"),
        (["-f", os.devnull], "has no prompt; write one per line"),
        (["-f", TARGET], "is not UTF-8"),
        (["--json-file", "no/such/x.json"], "the JSON file no/such/x.json cannot be written"),
        (["--mode", "sync"], "--mode is an option of duo run"),
        (["--draft-host", "127.0.0.1:9"], "duo tune measures two models on this machine; leave out --draft-host"),
        (["-m", TARGET, "--draft-host", "127.0.0.1:9"], "leave out --draft-host"),
        (["-md", DRAFT, "--verify-host", "127.0.0.1:9"], "leave out --verify-host"),
        (["--rpc", "127.0.0.1:9"], "leave out --rpc"),
        (["--temp", "x"], "temperature (--temp) is 'x'"),
        (["-c", 65], "no prompt fits the context"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(run: Run, args: list[Any], why: str) -> None:
    code, out, err = run(*args)
    assert (code, out) == (1, "")
    assert err.startswith("duo: ") and err.count("\n") == 1
    assert why in err


def test_no_model_elsewhere_is_offered(run: Run) -> None:
    out = run("--help-all")[1]
    assert "--model-draft" in out and not any(x in out for x in ("--draft-host", "--host-ca", "--rpc"))


@pytest.mark.parametrize("command", [[], ["tune"], ["bench"]])
def test_help_shows_examples_line_by_line(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "-h"]) == 0
    out = capsys.readouterr().out
    assert "\b" not in out and "\\b" not in out
    assert any(line.startswith(" ".join(["    duo", *command])) for line in out.splitlines())
