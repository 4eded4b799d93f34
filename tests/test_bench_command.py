"""`duo bench`: the command on the demo pair."""

import csv
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sizes import mostly_daily
from terminals import rest_of, terminal

from duo import Duo, DuoError
from duo.benchmark.bench import chart, files, report, slot_report
from duo.benchmark.bench.arms import ALONE, PLAIN, Arm
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.record import MeasuredAnswer
from duo.benchmark.bench.writer import DuoWriter
from duo.cli.bench_head import command_line
from duo.cli.commands.bench import command as bench
from duo.cli.main import main
from duo.models.demo import demo_pair
from duo.options.validate import generate_options

TARGET, DRAFT = map(str, demo_pair())

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: Any) -> tuple[int, str, str]:
        code = main(["bench", *map(str, args)])
        return (code, *capsys.readouterr())

    return call


@pytest.mark.full
def test_the_demo_pair_is_measured(run: Run, tmp_path: Path) -> None:
    out_json, out_csv, svg = (tmp_path / f"x.{kind}" for kind in ("json", "csv", "svg"))
    code, out, err = run(
        "-n", 12, "--questions", 2, "--repetitions", 1, "--sync-lengths", "1,3", "--lengths", "auto,4", "--temp", "0",
        "--ignore-eos", "--strict", "-c", 256, "--json-file", out_json, "--raw", "--csv", out_csv, "--chart", svg,
    )  # fmt: skip
    assert (code, err) == (0, "")
    found = json.loads(out_json.read_text())
    names = ["plain", "plain alone", "sync 1", "sync 3", "async auto", "async 4"]
    overall = {s["arm"]: s for s in found["summaries"] if s["category"] == "all"}
    assert list(overall) == names
    for s in overall.values():
        assert (s["n_answers"], s["n_tokens"], s["equal_share"]) == (2, 24, 1.0)
        assert s["tokens_per_s"]["low"] > 0
    assert overall["plain"]["to_plain"]["median"] == 1
    assert overall["sync 3"]["mean_length"] > 1
    assert len(overall["sync 3"]["acceptance_by_position"]) == 3
    best = found["best_sync"]["arm"]
    assert overall[best]["to_best_sync"]["median"] == 1
    assert (found["complete"], found["settings"]["temperature"], found["settings"]["strict"]) == (True, 0, True)
    assert found["command"].startswith("duo bench -n 12 --questions 2 ")
    assert found["target"]["file"] == Path(TARGET).name
    assert len(found["records"]) == 12
    for r in found["records"]:
        assert len(r["tokens"]) == len(r["t_us"]) == 12
        assert r["t_us"] == sorted(r["t_us"]) and r["t_us"][0] > 0
        assert r["timings"]["cache_n"] <= 1  # no arm finds the question evaluated by the one before
    assert {r["arm"] for r in csv.DictReader(out_csv.open())} == set(names)
    assert "async 4" in svg.read_text()
    assert f"best sync: draft length {found['best_sync']['n_draft']} (of 1, 3)" in out


@pytest.mark.daily
def test_sampled_texts_are_comparable(run: Run, tmp_path: Path) -> None:
    where = tmp_path / "x.json"
    args = ["-n", 12, "--questions", 1, "--repetitions", 1, "--warm-up", 0, "--modes", "async", "--strict", "--raw"]
    texts = []
    for seed in ([], ["-s", 1], ["-s", 2], ["-s", -1]):
        assert run(*args, *seed, "--temp", 1.5, "-c", 256, "--json-file", where)[0] == 0
        found = json.loads(where.read_text())
        assert all(s["equal_share"] == 1 for s in found["summaries"])
        assert found["settings"]["seed"] == (int(seed[1]) if seed and seed[1] > 0 else found["settings"]["seed"]) != -1
        texts.append(found["records"][0]["tokens"])
    assert texts[0] == texts[1] != texts[2]


def test_turns_follow_one_another(duo_pair: Duo) -> None:
    options = generate_options({"max_tokens": 8, "temperature": 0.0, "ignore_eos": True})
    writer = DuoWriter(duo_pair, options)
    question = Question(7, "tale", ("Once upon a time", "And then", "word " * 500))
    answers = writer.write(question, PLAIN)
    assert [len(a.tokens) for a in answers] == [8, 8]
    text = duo_pair.decode(list(answers[0].tokens))
    alone = duo_pair.generate(f"Once upon a time{text}\nAnd then", **{**options, "mode": "plain"})
    assert tuple(answers[1].tokens) == alone.tokens
    assert list(writer.notes) == ["turn 3 of question 7 was skipped: it does not fit the context of 512 tokens (-c)"]
    assert answers[1].timings["cache_n"] > 0  # its own first turn


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--modes", "plan"], "--modes has the unknown mode 'plan'; choose from plain, sync, async"),
        (["--lengths", "0"], "--lengths has the bad length '0'; give lengths from 1 to 64, or auto"),
        (["-f", "no/such"], "the question file no/such cannot be read (No such file"),
        (["--category", "poem"], "no question has the category 'poem'"),
        (["--json-file", "no/such/x.json"], "the JSON file no/such/x.json cannot be written"),
        (["--chart", "x.pdf"], "the chart x.pdf is neither .svg nor .png"),
        (["--raw"], "--raw adds the records to a JSON file; name the file with --json-file"),
        (["-m", TARGET, "--modes", "sync"], "--modes sync needs a draft; give it with -md"),
        (["-md", DRAFT], "a draft was given without a target"),
        (["-m", "no.gguf", "-md", DRAFT], "there is no file no.gguf"),
        (["--draft-min", 3], "n_draft_min (--draft-min) is 3, above n_draft (--draft), 1"),
        (["--temp", "x"], "temperature (--temp) is 'x'"),
        (["--draft", 4], "--draft is an option of duo run"),
        (["--questions", 0], "0 is not in the range"),
        (["-n", 200, "-c", 128], "no question fits the context together with its answer; raise -c or lower -n"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(run: Run, args: list[Any], why: str) -> None:
    code, out, err = run(*args)
    assert (code, out) == (1, "")
    assert err.startswith("duo: ") and err.count("\n") == 1
    assert why in err


FAILS = [("Ctrl-C in it", 130), ("Ctrl-C at once", 130), ("Ctrl-C while it loads", 130), ("no memory", 1)]


@pytest.mark.parametrize(("how", "code"), mostly_daily(FAILS, [FAILS[0], FAILS[3]]))
def test_the_pairs_texts_are_kept_if_the_target_alone_fails(
    how: str, code: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, written = tmp_path / "x.json", 0
    write, init = DuoWriter.write, Duo.__init__

    def writing(self: DuoWriter, question: Question, arm: Arm) -> list[MeasuredAnswer]:
        nonlocal written
        if arm == ALONE:
            if written == (1 if how == "Ctrl-C in it" else 0):
                raise KeyboardInterrupt
            written += 1
        return write(self, question, arm)

    def loading(self: Duo, model: Any, draft: Any = None, **options: Any) -> None:
        if draft is None and model is not None:
            raise DuoError("no memory for the second load") if how == "no memory" else KeyboardInterrupt
        init(self, model, draft, **options)

    monkeypatch.setattr(
        *((DuoWriter, "write", writing) if " in it" in how or "once" in how else (Duo, "__init__", loading))
    )
    args = ["-m", TARGET, "-md", DRAFT, "-n", 6, "-c", 256, "--questions", 2, "--repetitions", 1, "--warm-up", 0]
    found, out, _ = run(*args, "--modes", "plain", "--json-file", where)
    assert found == code
    why = {
        "Ctrl-C in it": "ended early: plain alone, 1 of 2 answers were written, including warm-up",
        "Ctrl-C at once": "ended early: plain alone, 0 of 2 answers were written, including warm-up",
        "Ctrl-C while it loads": "ended early: plain alone, while loading",
        "no memory": "plain alone failed: no memory for the second load",
    }[how]
    figures = json.loads(where.read_text())
    assert why in " ".join(out.split()) and why in figures["notes"] and not figures["complete"]
    answers = {s["arm"]: s["n_answers"] for s in figures["summaries"] if s["category"] == "all"}
    assert answers == {"plain": 2, **({"plain alone": 1} if how == "Ctrl-C in it" else {})}


def test_without_a_draft_plain_is_measured(run: Run, tmp_path: Path) -> None:
    where = tmp_path / "x.json"
    args = ["-m", TARGET, "-n", 8, "--questions", 1, "--repetitions", 1, "--warm-up", 0, "--json-file", where]
    code, out, err = run(*args)
    assert (code, err) == (0, "duo: plain decoding only: no draft was given (-md)\n")
    assert "plain" in out and "speculation" not in out
    assert [s["arm"] for s in json.loads(where.read_text())["summaries"]] == ["plain"]


@pytest.mark.parametrize("slots", [[], ["--slots", 1]], ids=["one", "slots"])
@pytest.mark.parametrize("models", [["-m", TARGET], ["--synthetic", "a=0.8,c=0.2"]], ids=["real", "synthetic"])
def test_files_are_written_before_a_reader_goes(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, models: list[str], slots: list[Any]
) -> None:
    def gone(*_: Any) -> None:
        raise BrokenPipeError

    for module in (report, slot_report):
        monkeypatch.setattr(module, "show", gone)
    where = tmp_path / "x.json"
    args = [*models, *slots, "-n", 2, "--repetitions", 1, "--modes", "plain", "--json-file", where]
    args += ["-c", 256, "--questions", 1, "--warm-up", 0] if "-m" in models else []
    assert run(*args)[0] == 0
    assert json.loads(where.read_text())["complete"]


def test_a_report_that_cannot_be_kept_is_shown(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: Any) -> None:
        raise DuoError("the disk is full")

    monkeypatch.setattr(files, "write_json", full)
    args = ["--synthetic", "a=0.8,c=0.2", "-n", 2, "--repetitions", 1, "--modes", "plain"]
    code, out, err = run(*args, "--json-file", tmp_path / "x.json")
    assert (code, err) == (1, "duo: the disk is full\n") and "tokens/s" in out


@pytest.mark.parametrize("words", [["--hf-token", "hf_x"], ["--hf-token=hf_x"], ["-hft", "hf_x"]], ids=str)
def test_a_report_has_no_token(words: list[str]) -> None:
    with bench.make_context("bench", ["-m", TARGET, *words, "-n", "8"]):
        hidden = [word.replace("hf_x", "***") for word in words]
        assert shlex.split(command_line()) == ["duo", "bench", "-m", TARGET, *hidden, "-n", "8"]


def test_a_chart_without_matplotlib(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart, "find_spec", lambda _name: None)
    code, _, err = run("--chart", "x.svg")
    assert (code, err) == (1, "duo: a chart needs matplotlib; install it with: pip install 'duo-llama[bench]'\n")


def test_the_hook_for_made_up_models(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called = []
    module = type(sys)("duo.benchmark.bench.synthetic_run")
    module.run = module.run_slots = lambda *args: called.append(args)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "duo.benchmark.bench.synthetic_run", module)
    args = ["--synthetic", "a=0.8", "--modes", "sync", "--sync-lengths", "2", "-n", 50]
    args += ["--json-file", tmp_path / "x.json"]
    assert run(*args)[0] == 0
    (arguments,) = called
    spec, arms, *rest, _bar = arguments
    assert (spec, rest) == ("a=0.8", [50, 2, tmp_path / "x.json", None])
    assert [(a.mode, a.n_draft) for a in arms] == [("plain", None), ("sync", 2)]
    code, _, err = run(*args, "--chart", "x.svg")
    assert (code, err.count("\n")) == (1, 1)
    assert "--chart has no effect with --synthetic" in err


@pytest.mark.daily  # a Ctrl-C that comes while it measures is tested above
def test_ctrl_c_in_the_program(tmp_path: Path) -> None:
    where = tmp_path / "x.json"
    args = ["--questions", "1", "--warm-up", "0", "--repetitions", "100000", "-n", "8", "--modes", "plain", "-c", "256"]
    with terminal("bench", *args, "--json-file", where, to=f"> {shlex.quote(str(tmp_path / 'out'))}") as child:
        child.expect(r"\b[1-9]\d*/100000")  # the bar: something is measured
        child.sendintr()
        assert rest_of(child)[0] == 130
    assert "ended early: " in (tmp_path / "out").read_text()
    found = json.loads(where.read_text())
    assert not found["complete"]
    assert found["summaries"][0]["n_answers"] > 0
