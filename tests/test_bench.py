"""`duo bench`: the formulas, the race, the figures, and the command on the demo pair."""

import csv
import json
import math
import os
import pty
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import HANG_S, start_duo
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from rich.console import Console

from duo import Duo, DuoError
from duo.bench import arms, bound, chart, files, measures, questions, report
from duo.bench.arms import PLAIN, Arm
from duo.bench.costs import acceptances, costs_of
from duo.bench.questions import Question
from duo.bench.record import Answer, Record
from duo.bench.run import interleaved
from duo.bench.writer import DuoWriter
from duo.check import generate_options
from duo.cli.main import main
from duo.demo import demo_pair

TARGET, DRAFT = map(str, demo_pair())
SYNC2, SYNC4, AUTO = Arm("sync 2", "sync", 2), Arm("sync 4", "sync", 4), Arm("async auto", "async", "auto")

chance = st.floats(0.0, 0.99)
chances = st.lists(chance, min_size=1, max_size=8)
cost = st.floats(0.01, 3.0)

# ---- bound.py


@settings(deadline=None)
@given(chance, st.integers(0, 20))
def test_tokens_per_pass_is_leviathans_for_one_acceptance(a: float, k: int) -> None:
    closed = (1 - a ** (k + 1)) / (1 - a)
    assert bound.tokens_per_pass([a], k) == approx(closed)
    assert bound.tokens_per_pass([a] * k) == approx(closed)
    assert bound.most_tokens_per_pass([a]) == approx(1 / (1 - a))
    assert bound.tokens_per_pass([a], k) <= bound.most_tokens_per_pass([a]) * (1 + 1e-12)


@settings(deadline=None)
@given(chances)
def test_tokens_per_pass_adds_up_and_tends_to_its_limit(a: list[float]) -> None:
    assert bound.tokens_per_pass(a, len(a)) == approx(1 + sum(math.prod(a[: i + 1]) for i in range(len(a))))
    assert bound.tokens_per_pass(a, 5000) == approx(bound.most_tokens_per_pass(a))


def test_exact_cases() -> None:
    flat: bound.PassCost = lambda n: 1.0  # noqa: E731
    rising: bound.PassCost = lambda n: 1 + 0.1 * (n - 1)  # noqa: E731
    assert bound.tokens_per_pass([]) == bound.most_tokens_per_pass([]) == 1
    assert bound.tokens_per_pass([0.5, 0.0, 0.9]) == 1.5 == bound.most_tokens_per_pass([0.5, 0.0, 0.9])
    assert bound.most_tokens_per_pass([1.0]) == math.inf
    assert bound.taking_turns([0.8], 0.1, flat, 0) == 1
    assert bound.taking_turns([0.8], 0.1, rising, 3) == approx((1 + 0.8 + 0.64 + 0.512) / (1.3 + 0.3))
    assert bound.best_sync([0.5], 0.5, flat, 4) == (1, approx(1.0))
    assert bound.best_sync([1.0], 0.0, flat, 7) == (7, 8)
    # Eight tokens in a pass that costs as much as one, then 1/c, then 1/(1-a) is what limits.
    assert bound.overlapped_bound([1.0], 0.01, flat, 7) == 8
    assert bound.overlapped_bound([1.0], 0.25, flat, 64) == approx(4)
    assert bound.overlapped_bound([0.5], 0.0, flat, 64) == approx(2)
    assert bound.overlapped_bound([0.9], 2.0, flat, 8) == 1  # a draft dearer than the target: it goes alone
    assert bound.hit_miss(1, 3, 9, 1.5, 1.0, 5) == approx(2)
    assert bound.hit_miss(1, 3, 9, 1.0, 1.5, 5) == approx(2)
    assert bound.hit_miss(0, 9, 2, 1.0, 9, 1.0) == approx(1)
    assert bound.hit_miss(0.5, 3, 1, 1.0, 0.5, 1.0) == approx(2 / 1.5)


@settings(deadline=None)
@given(chances, cost, st.floats(0.0, 1.0), st.integers(1, 12))
def test_the_bound_is_above_taking_turns_and_below_its_limits(
    a: list[float], c: float, rise: float, k_max: int
) -> None:
    v: bound.PassCost = lambda n: 1 + rise * (n - 1)  # noqa: E731
    most = bound.overlapped_bound(a, c, v, k_max)
    assert 1 <= most <= max(1.0, min(1 / c, bound.most_tokens_per_pass(a)))
    # Where the draft keeps up, overlapping never loses against turns of any length.
    if c <= 1 / bound.most_tokens_per_pass(a):
        assert bound.best_sync(a, c, v, k_max)[1] <= most * (1 + 1e-9)


@settings(deadline=None)
@given(st.lists(st.just(0.0) | st.floats(0.01, 0.99), min_size=1, max_size=8))
def test_conditional_undoes_the_products(a: list[float]) -> None:
    by_position = [math.prod(a[: i + 1]) for i in range(len(a))]
    found = bound.conditional(by_position)
    n = next((i + 1 for i, p in enumerate(by_position) if p <= 0), len(a))
    assert len(found) == n
    assert found[:-1] == approx(a[: n - 1], rel=1e-6)


def test_pass_cost_between_and_beyond_the_widths() -> None:
    v = bound.pass_cost({1: 10.0, 3: 12.0, 5: 20.0})
    assert [v(n) for n in (1, 2, 3, 4, 5, 7)] == approx([1, 1.1, 1.2, 1.6, 2.0, 2.8])
    assert v(1.5) == approx(1.05)
    assert bound.pass_cost({1: 10.0, 2: 9.0})(8) == approx(0.9)  # a dip does not go on
    for too_little in ({}, {1: 10.0}, {2: 10.0, 3: 11.0}):
        with pytest.raises(ValueError, match="are needed"):
            bound.pass_cost(too_little)


# ---- questions and arms


def line(n: int | str, category: str = "tale", *turns: str) -> str:
    return json.dumps({"question_id": n, "category": category, "turns": list(turns) or ["Once"], "reference": []})


def test_questions_are_read(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text("\ufeff" + line(81, "writing", "a\u2028b", "c") + "\r\n\n" + line("x") + "\n", encoding="utf-8")
    assert questions.read(file) == [Question(81, "writing", ("a\u2028b", "c")), Question("x", "tale", ("Once",))]
    built_in = questions.read()
    assert len(built_in) == 8
    assert {q.category for q in built_in} == {"tale", "novel", "code"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (line(1) + "\n{", "line 2 of {file} is not JSON (Expecting property name"),
        ("[1]", "line 1 of {file} is not a JSON object"),
        ('{"question_id": 1, "turns": ["a"]}', "line 1 of {file} has no category"),
        (line(True), "question_id is True"),
        (line(1, ""), "category is ''"),
        (line(1, "a", ""), "turns is not a list of texts"),
        ('{"question_id": 1, "category": "a", "turns": "b"}', "turns is not a list"),
        (line(1, "a", "b\0"), "NUL character"),
        (line(1) + "\n\n" + line(1), "line 3 of {file} repeats question_id 1 of line 1"),
        ("\n", "holds no question"),
        ("[" * 100_000, "line 1 of {file} is not JSON"),
        (b"\xff", "is not UTF-8 (byte 0)"),
        (None, "cannot be read (No such"),
    ],
)
def test_bad_question_files(tmp_path: Path, text: str | bytes | None, why: str) -> None:
    file = tmp_path / "q.jsonl"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DuoError) as e:
        questions.read(file)
    assert why.format(file=file) in str(e.value)
    assert "\n" not in str(e.value)


def test_questions_are_spread_over_the_file() -> None:
    found = [Question(i, "even" if i % 2 == 0 else "odd", ("a",)) for i in range(10)]
    ids = lambda n, *c: [q.question_id for q in questions.choose(found, n, c)]  # noqa: E731
    assert ids(None) == list(range(10)) == ids(10) == ids(99)
    assert ids(3) == [0, 3, 6]
    assert ids(4) == [0, 2, 5, 7]
    assert ids(2, "odd") == [1, 5]
    assert ids(None, "odd", "even") == list(range(10))
    with pytest.raises(DuoError, match=r"no question is of category 'od'; there are: even, odd"):
        ids(None, "od")


def test_arms() -> None:
    assert arms.parse_modes("async, plain,async") == ("async", "plain")
    assert arms.parse_lengths("auto,4,04,64", "--lengths", auto=True) == ("auto", 4, 64)
    assert arms.arms_of(("async",), (1, 2), ("auto", 4)) == [PLAIN, AUTO, Arm("async 4", "async", 4)]
    assert arms.arms_of(("sync", "plain"), (2, 4), ("auto",)) == [PLAIN, SYNC2, SYNC4]
    for text in ("0", "65", "auto", "-1", "1.5", "", "x", "²"):
        with pytest.raises(DuoError, match="--sync-lengths names"):
            arms.parse_lengths(text, "--sync-lengths", auto=False)
    for text in ("plan", "", ","):
        with pytest.raises(DuoError, match="--modes names"):
            arms.parse_modes(text)


# ---- the race


class Scripted:
    """Writes at once; remembers in which order. Presses Ctrl-C before answer `stop_at`."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.order: list[tuple[int | str, str]] = []
        self.stop_at = stop_at

    def write(self, question: Question, arm: Arm) -> Sequence[Answer]:
        if len(self.order) == self.stop_at:
            raise KeyboardInterrupt
        self.order.append((question.question_id, arm.name))
        return [Answer([1, 2], [10, 20], {"predicted_n": 2, "predicted_ms": 0.01}) for _ in question.turns]


def test_arms_take_turns_on_each_question() -> None:
    asked = [Question(1, "a", ("x", "y")), Question(2, "b", ("z",))]
    writer, told = Scripted(), []
    records = interleaved(writer, asked, [PLAIN, SYNC2, AUTO], 3, 1, lambda *p: told.append(p))
    p, s, a = PLAIN.name, SYNC2.name, AUTO.name
    groups = [writer.order[i : i + 3] for i in range(0, 21, 3)]
    assert [{q for q, _ in g} for g in groups] == [{1}, {1}, {2}, {1}, {2}, {1}, {2}]  # the first is the warm-up
    assert [[name for _, name in g] for g in groups[:4]] == [[p, s, a], [s, a, p], [a, p, s], [p, s, a]]
    assert len(records) == 3 * 3 * (2 + 1)
    assert [(r.question_id, r.turn, r.repetition) for r in records[:2]] == [(1, 0, 0), (1, 1, 0)]
    assert records[0].gaps_ms == [0.01]
    assert [d for d, _, _ in told] == list(range(22))
    assert told[-1] == (21, 21, "")


def test_ctrl_c_keeps_what_was_measured() -> None:
    asked, told = [Question(1, "a", ("x",)), Question(2, "b", ("z",))], []
    records = interleaved(Scripted(stop_at=5), asked, [PLAIN, AUTO], 2, 1, lambda *p: told.append(p))
    assert [(r.question_id, r.arm) for r in records] == [(1, AUTO), (1, PLAIN), (2, PLAIN)]
    assert told[-1] == (5, 10, "")
    with pytest.raises(KeyboardInterrupt):
        interleaved(Scripted(stop_at=1), asked, [PLAIN, AUTO], 2, 1)


# ---- the figures


def record(arm: Arm, q: int, rate: float, *, rep: int = 0, tokens: Sequence[int] = (1, 2, 3), **timings: Any) -> Record:
    """An answer of 11 tokens by the clock, at so many tokens/s."""
    base = {"predicted_n": 11, "predicted_ms": 1e4 / rate, "ttft_ms": 5.0 + q, "target_busy_share": 0.5}
    t_us = (0, 0, 3000)
    return Record(arm, q, "ab"[q % 2], rep, 0, tuple(tokens), t_us, {**base, **timings})


def drafted(passes: int, by_position: Sequence[float], n_drafted: int, hits: int = 0) -> dict[str, Any]:
    accepted = round(sum(by_position) * passes)
    return {
        "draft_n": n_drafted, "draft_n_accepted": accepted, "draft_rounds": passes, "draft_hit_n": hits,
        "draft_acceptance_by_position": list(by_position), "target_passes_n": passes, "verify_wait_ms": 0.0,
    }  # fmt: skip


PER_PASS = {"draft_hit_tokens_per_pass": 3.0, "draft_miss_tokens_per_pass": 1.0}
OF_SYNC2, OF_SYNC4 = drafted(100, (0.8, 0.6), 200), drafted(100, (0.8, 0.4, 0.2, 0.1), 400)
OF_AUTO = {**drafted(100, (0.7,), 200, hits=75), **PER_PASS, "step_ms": {"1": 2.0}}
RECORDS = [
    record(*what, **timings)
    for q, sync4_rate in ((0, 140), (1, 140), (2, 400))
    for what, timings in [
        # Noise that hits a whole round (the second is half as fast) leaves ratios as they are.
        ((PLAIN, q, 100), {"pass_ms": {"1": 10.0}}),
        ((PLAIN, q, 50), {"pass_ms": {"1": 10.0}, "rep": 1}),
        ((SYNC2, q, 150), {"pass_ms": {"3": 11.0}, **OF_SYNC2}),
        ((SYNC2, q, 75), {"pass_ms": {"3": 11.0}, **OF_SYNC2, "rep": 1}),
        ((SYNC4, q, sync4_rate), {"tokens": (1, 2, 4 if q else 3), **OF_SYNC4}),
        ((AUTO, q, 200), OF_AUTO),
    ]
]


def test_figures_by_arm_and_category() -> None:
    assert measures.best_sync(RECORDS) == SYNC2  # 1.5 everywhere; sync 4 is faster once only
    found = {(s.category, s.arm): s for s in measures.summarise(RECORDS)}
    assert [key for key in found if key[0] == "all"] == [("all", x) for x in (PLAIN, SYNC2, SYNC4, AUTO)]
    plain, sync2, sync4, auto = (found["all", x] for x in (PLAIN, SYNC2, SYNC4, AUTO))
    assert plain.to_plain == measures.Spread(1, 1, 1)
    assert plain.tokens_per_s is not None and plain.tokens_per_s.median == approx(75)
    assert (plain.bound, plain.mean_length, plain.equal_share) == (None, None, 1.0)
    assert sync2.to_plain is not None and sync2.to_plain.median == approx(1.5)
    assert (sync2.mean_length, sync2.acceptance) == (approx(2.4), approx(0.7))
    assert sync2.acceptance_by_position == approx((0.8, 0.6))
    assert sync4.to_plain is not None and (sync4.to_plain.median, sync4.to_plain.high) == (approx(1.4), approx(2.7))
    assert sync4.equal_share == approx(1 / 3)
    assert auto.to_best_sync is not None and auto.to_best_sync.median == approx(4 / 3)
    assert (auto.hit_rate, auto.tokens_on_hit, auto.tokens_on_miss) == (0.75, 3, 1)
    assert (auto.p50_ms, auto.p99_ms) == (approx(1.5), approx(3.0, rel=0.02))
    assert (auto.ttft_ms, auto.rollback_share) == (measures.Spread(6, 5.5, 6.5), None)
    by_category = found["a", SYNC4].to_plain
    assert by_category is not None and by_category.median == approx(2.7)


def test_the_bound_is_of_the_same_run() -> None:
    costs = costs_of(RECORDS)
    assert (costs.pass_ms, costs.step_ms, costs.c) == ({1: 10.0, 3: 11.0}, {1: 2.0}, 0.2)
    a = acceptances(RECORDS)  # of the longest sync arm
    assert a == approx([0.8, 0.5, 0.5, 0.5])
    auto = next(s for s in measures.summarise(RECORDS) if s.arm == AUTO)
    assert costs.v is not None
    expected = bound.overlapped_bound(a, 0.2, costs.v, 64)
    assert (auto.bound, auto.efficiency) == (approx(expected), approx(2 / expected))
    # Two drafted tokens in a pass of three rows, 1.1; 75 hits of 100 passes.
    assert auto.hit_miss == approx((0.75 * 3 + 0.25) / 1.1)
    assert auto.efficiency_hit_miss == approx(2 / auto.hit_miss)


def test_without_the_engines_costs_there_is_no_bound() -> None:
    old = ("pass_ms", "step_ms", "target_passes_n", "draft_hit_tokens_per_pass", "draft_miss_tokens_per_pass")
    records = [replace(r, timings={k: v for k, v in r.timings.items() if k not in old}) for r in RECORDS]
    for s in measures.summarise(records):
        assert (s.bound, s.efficiency, s.hit_miss, s.hit_rate, s.tokens_on_hit) == (None,) * 5
        assert s.to_plain is not None


def test_a_position_hardly_seen_does_not_count() -> None:
    arm = Arm("sync 3", "sync", 3)
    few = [record(arm, 0, 100, **drafted(100, (0.5, 0.1, 0.1), 300))]
    assert acceptances(few) == approx([0.5, 0.2])  # ten tokens reached the third position
    assert acceptances([record(PLAIN, 0, 100)]) == []


def test_plain_alone_and_answers_of_one_token() -> None:
    one = Record(PLAIN, 1, "a", 0, 0, (5,), (7,), {"predicted_n": 1, "predicted_ms": 0.001})
    (s,) = measures.summarise([one])
    assert (s.tokens_per_s, s.to_plain, s.p50_ms, s.ttft_ms, s.equal_share) == (None, None, None, None, 1.0)
    report.show([one])


# ---- what is written


def test_json_csv_and_screen_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = files.as_json(RECORDS, {"machine": "m"}, ["a note"], raw=True, complete=False)
    files.write_json(tmp_path / "x.json", figures)
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["best_sync"] == {"arm": "sync 2", "mode": "sync", "n_draft": 2}
    assert (found["machine"], found["complete"], found["notes"][-1]) == ("m", False, "a note")
    assert len(found["records"]) == len(RECORDS)
    assert found["records"][0]["gaps_ms"] == [0.0, 3.0]
    files.write_csv(tmp_path / "x.csv", RECORDS)
    with (tmp_path / "x.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["category"], r["arm"]) for r in rows] == [(s["category"], s["arm"]) for s in found["summaries"]]
    assert {r["category"] for r in rows} == {"all", "a", "b"}
    for row, s in zip(rows, found["summaries"], strict=True):
        assert float(row["to_plain"]) == s["to_plain"]["median"]
        assert float(row["tokens_per_s_high"]) == s["tokens_per_s"]["high"]
        assert row["rollback_share"] == ""
    report.show(RECORDS, None, (), Console(width=80))
    assert "…" not in capsys.readouterr().out  # nothing is cut off
    report.show(RECORDS, None, ["a note"])
    out = capsys.readouterr().out
    assert "best sync: draft length 2 (of 2, 4)" in out
    assert "a note" in out
    auto = next(x for x in out.splitlines() if x.startswith("async auto"))
    assert "200.0 (200.0-200.0)" in auto and "2.00 (2.00-2.00)" in auto and "1.33" in auto
    assert "rolled back" not in out  # nothing measured it


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "x.csv"):
        with pytest.raises(DuoError, match="cannot be written"):
            files.check_writable(path, "CSV")
    for write in (lambda p: files.write_csv(p, RECORDS), lambda p: files.write_json(p, {})):
        with pytest.raises(DuoError, match="cannot be written"):
            write(tmp_path / "no" / "x")


def test_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    summaries, sync = measures.summarise(RECORDS), measures.best_sync(RECORDS)
    svg, png = tmp_path / "x.svg", tmp_path / "x.PNG"
    chart.draw(summaries, sync, svg, "target + $draft$")
    text = svg.read_text()
    for word in ("best sync (2)", "async auto", "speed-up over plain", ">a<", ">b<", ">all<", "target + $draft$"):
        assert word in text
    assert "sync 4" not in text
    chart.draw(summaries, sync, svg, "target + $draft$")
    assert svg.read_text() == text
    chart.draw(summaries, sync, png)
    assert png.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DuoError, match="nothing to draw"):
        chart.draw([s for s in summaries if s.arm == PLAIN], None, svg)
    with pytest.raises(DuoError, match="cannot be written"):
        chart.draw(summaries, sync, tmp_path / "no" / "x.svg")


# ---- the command, and a loaded pair

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: Any) -> tuple[int, str, str]:
        code = main(["bench", *map(str, args)])
        return (code, *capsys.readouterr())

    return call


def test_the_demo_pair_is_measured(run: Run, tmp_path: Path) -> None:
    out_json, out_csv, svg = (tmp_path / f"x.{kind}" for kind in ("json", "csv", "svg"))
    code, out, err = run(
        "-n", 12, "--questions", 2, "--repetitions", 1, "--sync-lengths", "1,3", "--lengths", "auto,4", "--temp", "0",
        "--ignore-eos", "--strict", "-c", 256, "--json", out_json, "--raw", "--csv", out_csv, "--chart", svg,
    )  # fmt: skip
    assert (code, err) == (0, "")
    found = json.loads(out_json.read_text())
    names = ["plain", "sync 1", "sync 3", "async auto", "async 4"]
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
    assert len(found["records"]) == 10
    for r in found["records"]:
        assert len(r["tokens"]) == len(r["t_us"]) == 12
        assert r["t_us"] == sorted(r["t_us"]) and r["t_us"][0] > 0
        assert r["timings"]["cache_n"] <= 1  # no arm finds the question evaluated by the one before
    assert {r["arm"] for r in csv.DictReader(out_csv.open())} == set(names)
    assert "async 4" in svg.read_text()
    assert f"best sync: draft length {found['best_sync']['n_draft']} (of 1, 3)" in out


def test_sampled_texts_are_comparable(run: Run, tmp_path: Path) -> None:
    where = tmp_path / "x.json"
    args = ["-n", 12, "--questions", 1, "--repetitions", 1, "--warm-up", 0, "--modes", "async", "--strict", "--raw"]
    texts = []
    for seed in ([], ["-s", 1], ["-s", 2], ["-s", -1]):
        assert run(*args, *seed, "--temp", 1.5, "-c", 256, "--json", where)[0] == 0
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
    text = duo_pair.detokenize(list(answers[0].tokens))
    alone = duo_pair.generate(f"Once upon a time{text}\nAnd then", **{**options, "mode": "plain"})
    assert tuple(answers[1].tokens) == alone.tokens
    assert list(writer.notes) == ["turn 3 of question 7 was left out: it would not fit the context of 512 tokens (-c)"]
    assert answers[1].timings["cache_n"] > 0  # its own first turn


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--modes", "plan"], "--modes names 'plan'; choose from plain, sync, async"),
        (["--lengths", "0"], "--lengths names '0'; give lengths from 1 to 64, or auto"),
        (["-f", "no/such"], "the question file no/such cannot be read (No such file"),
        (["--category", "poem"], "no question is of category 'poem'"),
        (["--json", "no/such/x.json"], "the JSON file no/such/x.json cannot be written"),
        (["--chart", "x.pdf"], "the chart x.pdf is neither .svg nor .png"),
        (["--raw"], "--raw adds the records to a JSON file; name it with --json"),
        (["-m", TARGET, "--modes", "sync"], "--modes sync needs a draft; give it with -md"),
        (["-md", DRAFT], "a draft was given without a target"),
        (["-m", "no.gguf", "-md", DRAFT], "there is no file no.gguf"),
        (["--draft-min", 3], "n_draft_min (--draft-min) is 3, above n_draft (--draft), 1"),
        (["--temp", "x"], "temperature (--temp) is 'x'"),
        (["--draft", 4], "there is no option --draft"),
        (["--questions", 0], "0 is not in the range"),
        (["-n", 200, "-c", 128], "no question fits the context with the tokens asked for; raise -c or lower -n"),
    ],
)
def test_what_is_wrong_is_one_sentence(run: Run, args: list[Any], why: str) -> None:
    code, out, err = run(*args)
    assert (code, out) == (1, "")
    assert err.startswith("duo: ") and err.count("\n") == 1
    assert why in err


def test_without_a_draft_plain_is_measured(run: Run, tmp_path: Path) -> None:
    where = tmp_path / "x.json"
    args = ["-m", TARGET, "-n", 8, "--questions", 1, "--repetitions", 1, "--warm-up", 0, "--json", where]
    code, out, err = run(*args)
    assert (code, err) == (0, "duo: plain decoding only: no draft was given (-md)\n")
    assert "plain" in out and "speculation" not in out
    assert [s["arm"] for s in json.loads(where.read_text())["summaries"]] == ["plain"]


def test_a_chart_without_matplotlib(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart, "find_spec", lambda _name: None)
    code, _, err = run("--chart", "x.svg")
    assert (code, err) == (1, "duo: a chart needs matplotlib; it comes with: pip install duo[bench]\n")


def test_the_hook_for_made_up_models(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called = []
    module = type(sys)("duo.bench.synthetic")
    module.run = lambda *args: called.append(args)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "duo.bench.synthetic", module)
    args = ["--synthetic", "a=0.8", "--modes", "sync", "--sync-lengths", "2", "-n", 50, "--json", tmp_path / "x.json"]
    assert run(*args)[0] == 0
    assert called == [("a=0.8", ("sync",), (2,), ("auto",), 50, 2, tmp_path / "x.json", None)]
    code, _, err = run(*args, "--chart", "x.svg")
    assert (code, err.count("\n")) == (1, 1)
    assert "--chart has no meaning with --synthetic" in err


def test_ctrl_c_in_the_program(tmp_path: Path) -> None:
    where = tmp_path / "x.json"
    args = ["--questions", "1", "--warm-up", "0", "--repetitions", "100000", "-n", "8", "--modes", "plain", "-c", "256"]
    ours, theirs = pty.openpty()
    process = start_duo("bench", *args, "--json", where, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    try:
        shown = b""
        while not re.search(rb"\b[1-9]\d*/100000", shown):  # the bar: something is measured
            data = os.read(ours, 65536)
            assert data
            shown += data
        process.send_signal(signal.SIGINT)
        threading.Thread(target=_drain, args=(ours,)).start()
        out, _ = process.communicate(timeout=HANG_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "ended early: " in out.decode()
    found = json.loads(where.read_text())
    assert not found["complete"]
    assert found["summaries"][0]["n_answers"] > 0


def _drain(terminal: int) -> None:
    """A program whose terminal nobody reads waits for ever."""
    with suppress(OSError):  # the other side is closed
        while os.read(terminal, 65536):
            pass
    os.close(terminal)
