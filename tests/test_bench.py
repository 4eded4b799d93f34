"""`duo bench`: the formulas, the questions, the arms."""

import json
import math
from pathlib import Path

import pytest
from bench_arms import AUTO, SYNC2, SYNC4
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from duo import DuoError
from duo.benchmark.bench import arms, bound, questions
from duo.benchmark.bench.arms import PLAIN, Arm
from duo.benchmark.bench.questions import Question

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
        with pytest.raises(ValueError, match="are required"):
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
        ("\n", "has no question"),
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
    with pytest.raises(DuoError, match=r"no question has the category 'od'; choose from even, odd"):
        ids(None, "od")


def test_arms() -> None:
    assert arms.parse_modes("async, plain,async") == ("async", "plain")
    assert arms.parse_lengths("auto,4,04,64", "--lengths", auto=True) == ("auto", 4, 64)
    assert arms.arms_of(("async",), (1, 2), ("auto", 4)) == [PLAIN, AUTO, Arm("async 4", "async", 4)]
    assert arms.arms_of(("sync", "plain"), (2, 4), ("auto",)) == [PLAIN, SYNC2, SYNC4]
    for text in ("0", "65", "auto", "-1", "1.5", "", "x", "²"):
        with pytest.raises(DuoError, match=r"--sync-lengths (has|is empty)"):
            arms.parse_lengths(text, "--sync-lengths", auto=False)
    for text in ("plan", "", ","):
        with pytest.raises(DuoError, match=r"--modes (has|is empty)"):
            arms.parse_modes(text)
