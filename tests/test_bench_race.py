"""`duo bench`: the race, the figures, and what is written of them."""

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_arms import AUTO, SYNC2, SYNC4
from pytest import approx
from rich.console import Console

from duo import DuoError
from duo.benchmark.bench import bound, chart, files, measures, report
from duo.benchmark.bench.arms import ALONE, PLAIN, Arm
from duo.benchmark.bench.costs import acceptances, costs_of
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.quote import quote
from duo.benchmark.bench.record import AnswerRecord, MeasuredAnswer
from duo.benchmark.bench.run import interleaved

# ---- the race


class Scripted:
    """Writes at once; remembers in which order. Presses Ctrl-C before answer `stop_at`."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.order: list[tuple[int | str, str]] = []
        self.stop_at = stop_at

    def write(self, question: Question, arm: Arm) -> Sequence[MeasuredAnswer]:
        if len(self.order) == self.stop_at:
            raise KeyboardInterrupt
        self.order.append((question.question_id, arm.name))
        return [MeasuredAnswer([1, 2], [10, 20], {"predicted_n": 2, "predicted_ms": 0.01}) for _ in question.turns]


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


def record(
    arm: Arm, q: int, rate: float, *, rep: int = 0, tokens: Sequence[int] = (1, 2, 3), **timings: Any
) -> AnswerRecord:
    """An answer of 11 tokens by the clock, at so many tokens/s."""
    base = {"predicted_n": 11, "predicted_ms": 1e4 / rate, "ttft_ms": 5.0 + q, "target_busy_share": 0.5}
    t_us = (0, 0, 3000)
    return AnswerRecord(arm, q, "ab"[q % 2], rep, 0, tuple(tokens), t_us, {**base, **timings})


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


def test_rarely_tested_positions_do_not_count() -> None:
    arm = Arm("sync 3", "sync", 3)
    few = [record(arm, 0, 100, **drafted(100, (0.5, 0.1, 0.1), 300))]
    assert acceptances(few) == approx([0.5, 0.2])  # ten tokens reached the third position
    assert acceptances([record(PLAIN, 0, 100)]) == []


def test_plain_alone_and_answers_of_one_token() -> None:
    one = AnswerRecord(PLAIN, 1, "a", 0, 0, (5,), (7,), {"predicted_n": 1, "predicted_ms": 0.001})
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
    assert out.splitlines()[-1] == found["quote"] == "2.00x plain, 1.33x the best turn-taking, 0 of 3 texts differ"


def of_arms(*arms: Arm) -> list[AnswerRecord]:
    return [r for r in RECORDS if r.arm in arms]


def test_the_line_to_quote() -> None:
    head: dict[str, Any] = {"target": {"devices": ["CUDA0", "CPU"]}, "draft": {"devices": ["CPU"]}, "cores": 2}
    on_cpu = {**head, "target": {"devices": ["CPU"]}}
    assert quote(RECORDS, head) == ("2.00x plain, 1.33x the best turn-taking, 0 of 3 texts differ, CUDA0 and 2 cores")
    assert quote(of_arms(PLAIN, AUTO), on_cpu) == "2.00x plain, 0 of 3 texts differ, 2 cores"
    assert quote(of_arms(PLAIN, SYNC4)) == "sync 4: 1.40x plain, 2 of 3 texts differ"
    assert quote(of_arms(PLAIN), {"target": {"devices": ["CPU"]}, "cores": 1}) == "plain: 75.0 tokens/s, 1 core"
    assert quote(of_arms(PLAIN, AUTO), {"settings": {"synthetic": "a=0.8"}}).endswith(", simulated models")
    assert quote([]) == quote(of_arms(AUTO)) == ""
    # Of several lengths, duo's own; without it the fastest.
    fast, slow = (record(Arm(f"async {k}", "async", k), 0, rate, tokens=(9,)) for k, rate in ((4, 300), (2, 150)))
    assert quote([*RECORDS, fast, slow]) == quote(RECORDS)
    assert quote([*of_arms(PLAIN), slow, fast]) == "async 4: 3.00x plain, 1 of 1 text differs"
    # A target that is faster without the draft beside it.
    alone = [record(ALONE, q, 125) for q in range(3)]
    assert quote(of_arms(PLAIN, AUTO) + alone) == "2.00x plain, 1.60x the target alone, 0 of 3 texts differ"
    alone = [record(ALONE, q, 80) for q in range(3)]
    assert quote(of_arms(PLAIN, AUTO) + alone) == "2.00x plain, 0 of 3 texts differ"


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "x.csv"):
        with pytest.raises(DuoError, match="cannot be written"):
            files.check_writable(path, "CSV")
    for write in (lambda p: files.write_csv(p, RECORDS), lambda p: files.write_json(p, {})):
        with pytest.raises(DuoError, match="cannot be written"):
            write(tmp_path / "no" / "x")


@pytest.mark.daily  # test_bench_command draws one
@pytest.mark.full
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
