"""`duo bench --slots`: several texts at once."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench_arms import AUTO, SYNC2
from pytest import approx

from duo import DuoError
from duo.benchmark.bench import slot_figures, slot_report
from duo.benchmark.bench.arms import PLAIN, Arm, parse_slots
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.record import AnswerRecord, MeasuredAnswer
from duo.benchmark.bench.slots import Round, rounds_of
from duo.benchmark.bench.strangers import strangers
from duo.cli.main import main

Run = Callable[..., tuple[int, str, str]]
ASKED = [Question(i, "a", (f"question {i}",)) for i in range(3)]


class Scripted:
    """Writes at once, and remembers what it was asked. Presses Ctrl-C when an arm begins for the n-th time."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.opened: list[int] = []
        self.cleared: list[tuple[int, int]] = []
        self.answered: list[tuple[str, int | str]] = []
        self.stop_at = stop_at

    @contextmanager
    def __call__(self, n: int) -> "Iterator[Scripted]":
        self.opened.append(n)
        yield self

    def clear(self, questions: Sequence[Question], n: int) -> None:
        if len(self.cleared) == self.stop_at:
            raise KeyboardInterrupt
        self.cleared.append((len(questions), n))

    def answers(self, question: Question, arm: Arm) -> Sequence[MeasuredAnswer]:
        self.answered.append((arm.name, question.question_id))
        return [MeasuredAnswer([1, 2], [10, 20], {"predicted_n": 2, "predicted_ms": 0.01})]


def test_every_arm_answers_all_with_each_number() -> None:
    writer, told = Scripted(), []
    rounds = rounds_of(writer, ASKED, [PLAIN, AUTO], [1, 4], 2, 1, lambda *p: told.append(p))
    assert writer.opened == [1, 4, 1, 4]
    # The warm-up has a text for each slot, of three questions over and over.
    assert writer.cleared == 2 * [(1, 1), (1, 1), (3, 1), (3, 1), (4, 4), (4, 4), (3, 4), (3, 4)]
    assert [(r.slots, r.arm) for r in rounds[:4]] == [(1, PLAIN), (1, AUTO), (4, AUTO), (4, PLAIN)]
    assert len(rounds) == 8
    assert [x.question_id for r in rounds for x in r.records] == [0, 1, 2] * 8  # in order, whoever ends first
    assert told[-1] == (44, 44, "")
    assert len(writer.answered) == 44


def test_ctrl_c_keeps_the_rounds_that_are_whole() -> None:
    told: list[tuple[int, int, str]] = []
    rounds = rounds_of(Scripted(stop_at=3), ASKED, [PLAIN, AUTO], [1, 2], 1, 0, lambda *p: told.append(p))
    assert len(rounds) == 3
    assert told[-1] == (9, 12, "")
    with pytest.raises(KeyboardInterrupt):
        rounds_of(Scripted(stop_at=0), ASKED, [PLAIN], [1])


def record(arm: Arm, q: int, rate: float, tokens: Sequence[int] = (1, 2, 3)) -> AnswerRecord:
    """11 tokens by the clock, at so many tokens/s."""
    timings = {"predicted_n": 11, "predicted_ms": 1e4 / rate, "ttft_ms": 5.0 + q, "draft_n": 4, "draft_n_accepted": 3}
    return AnswerRecord(arm, q, "a", 0, 0, tuple(tokens), (0, 0, 3000), {} if arm == Arm("", "plain") else timings)


def made(slots: int, arm: Arm, seconds: Sequence[float], rates: Sequence[float] = (10, 20), **more: Any) -> list[Round]:
    return [
        Round(slots, arm, r, s, tuple(record(arm, q, rate, **more) for q, rate in enumerate(rates)))
        for r, s in enumerate(seconds)
    ]


ROUNDS = [
    *made(1, PLAIN, (4.0, 8.0)), *made(1, SYNC2, (3.0, 6.0)), *made(1, AUTO, (2.0, 4.0)),
    *made(2, PLAIN, (2.0, 4.0)), *made(2, SYNC2, (2.0, 4.0)), *made(2, AUTO, (1.0, 2.0), tokens=(1, 2, 4)),
]  # fmt: skip


def test_figures() -> None:
    found = {(s.slots, s.arm): s for s in slot_figures.summarise_slots(ROUNDS)}
    assert list(found) == [(n, arm) for n in (1, 2) for arm in (PLAIN, SYNC2, AUTO)]
    s = found[2, AUTO]
    assert s.tokens_per_s is not None and s.tokens_per_s.median == approx((6 / 1 + 6 / 2) / 2)
    # The second repetition is half as fast everywhere, which leaves the ratios as they are.
    assert (s.to_one_by_one, s.to_plain, s.to_best_sync) == (approx(2), approx(2), approx(2))
    assert (s.equal_share, found[2, SYNC2].equal_share) == (0, 1)
    assert s.fairness == approx(10 / 15)
    assert found[1, AUTO].fairness is None  # nobody is beside it
    assert (s.p50_ms, s.acceptance) == (approx(1.5), approx(0.75))
    assert s.ttft_ms is not None and s.ttft_ms.median == approx(5.5)


def test_json_and_screen(capsys: pytest.CaptureFixture[str]) -> None:
    found = slot_figures.as_json(ROUNDS, {"machine": "m"}, ["a note"], raw=True, complete=False)
    found = json.loads(json.dumps(found))
    assert (found["machine"], found["complete"], found["notes"], len(found["rounds"])) == ("m", False, ["a note"], 12)
    assert [(s["slots"], s["arm"]) for s in found["summaries"]][:2] == [(1, "plain"), (1, "sync 2")]
    slot_report.show(ROUNDS, {}, ["a note"])
    out = capsys.readouterr().out
    assert "2 questions, 2 repetitions" in out and "a note" in out and "0.67" in out


def test_strangers_begin_no_question() -> None:
    assert strangers({1}, 10, 3) == [2, 3, 4]
    assert strangers({9, 0}, 10, 2) == [1, 2]
    assert strangers({0, 1}, 3, 5) == [2]


@pytest.mark.parametrize("text", ["", "0", "17", "2,x", ","])
def test_bad_numbers(text: str) -> None:
    with pytest.raises(DuoError, match="--slots"):
        parse_slots(text)


def test_numbers_begin_with_one() -> None:
    assert parse_slots("4, 2,4") == (1, 2, 4)


# ---- the command


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: Any) -> tuple[int, str, str]:
        code = main(["bench", *map(str, args)])
        return (code, *capsys.readouterr())

    return call


def test_the_demo_pair(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    code, out, err = run(
        "--slots", "2", "-n", 12, "--questions", 3, "--repetitions", 1, "--sync-lengths", 2, "--temp", 0,
        "--ignore-eos", "-c", 512, "--json-file", file, "--raw",
    )  # fmt: skip
    assert (code, err) == (0, "")
    found = json.loads(file.read_text())
    assert [(s["slots"], s["arm"]) for s in found["summaries"]] == [
        (n, arm) for n in (1, 2) for arm in ("plain", "sync 2", "async auto")
    ]
    for s in found["summaries"]:
        assert (s["n_answers"], s["n_tokens"]) == (3, 36)
        assert s["tokens_per_s"]["median"] > 0
    assert found["settings"]["slots"] == "1,2"
    for r in found["rounds"]:
        assert all(x["timings"]["cache_n"] <= 1 for x in r["records"])  # no arm finds what another has evaluated
    assert "slowest/mean" in out


def test_texts_that_do_not_fit_together_are_noted(run: Run) -> None:
    code, out, _ = run("--slots", "4", "-n", 60, "--questions", 4, "--repetitions", 1, "--warm-up", 0, "--modes",
                       "plain", "-c", 192)  # fmt: skip
    assert code == 0
    assert "4 texts do not all fit the context of" in out


def test_simulated_models(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    code, _, err = run("--synthetic", "a=0.9,c=0.2,pass=1ms", "--slots", "3", "-n", 20, "--repetitions", 1,
                       "--json-file", file)  # fmt: skip
    assert (code, err) == (0, "")
    found = json.loads(file.read_text())
    assert found["command"].endswith("--modes plain,sync,async --sync-lengths 2,4 --lengths auto --slots 1,3")
    assert all(s["equal_share"] == 1 for s in found["summaries"])


@pytest.mark.parametrize(
    ("args", "flag"),
    [(["--csv", "x"], "--csv"), (["--chart", "x.svg"], "--chart"), (["-np", "2"], "-np"), (["--no-alone"], "alone")],
)
def test_what_has_no_effect_is_refused(args: list[str], flag: str, run: Run) -> None:
    code, _, err = run("--slots", "2", *args)
    assert code == 1
    assert flag in err and "leave it out" in err
