"""What `duo bench --synthetic` may be told, and the engine on models without weights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from duo import _core
from duo.benchmark.bench.arms import PLAIN, Arm
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.synthetic import PARTS, SyntheticWriter, parse
from duo.errors import DuoError

QUESTION = Question(1, "made up", ("one", "two"))


def test_values() -> None:
    o = parse(
        "a=0.9/0.5:16, c=0.25, v=1@1/1.2@2/1.6@4/2.6@8, b=0.3, branch=0.05, burst=0.5, pass=1.5ms,"
        "confident=1, says=0.4, seed=7"
    )
    assert o.a == [0.9, 0.5]
    assert o.n_stretch == 16
    assert o.c == 0.25
    assert o.v == [(1, 1.0), (2, 1.2), (4, 1.6), (8, 2.6)]
    assert (o.b, o.branch_cost, o.burst) == (0.3, 0.05, 0.5)
    assert o.pass_us == pytest.approx(1500.0)
    assert o.confident is True
    assert o.says == 0.4
    assert o.seed == 7


def test_what_is_left_out() -> None:
    o = parse("a=0.6")
    assert o.a == [0.6]
    assert (o.n_stretch, o.c, o.b, o.branch_cost, o.burst) == (0, 0.2, 0.45, 0.02, 0.0)
    assert o.v == [(1, 1.0), (2, 1.02)]
    assert o.pass_us == 20_000
    assert o.confident is False
    assert o.says == 0.0
    assert o.has_draft is True


@pytest.mark.parametrize(
    ("spec", "v"),
    [
        ("v=1:0.02", [(1, 1.0), (2, pytest.approx(1.02))]),
        ("v=2:0", [(1, 2.0), (2, 2.0)]),
        ("v=1@1", [(1, 1.0)]),
        ("v=1@2/3@5", [(2, 1.0), (5, 3.0)]),
    ],
)
def test_costs(spec: str, v: list[tuple[int, float]]) -> None:
    assert parse(spec).v == v


@pytest.mark.parametrize(("text", "us"), [("50us", 50), ("20ms", 20_000), ("0.5s", 500_000), ("0ms", 0)])
def test_times(text: str, us: float) -> None:
    assert parse(f"pass={text}").pass_us == pytest.approx(us)


@pytest.mark.parametrize("values", ["0", "1", "0.5/0.25/1", "1e-1"])
def test_agreements(values: str) -> None:
    assert parse(f"a={values}").a == [float(x) for x in values.split("/")]


@pytest.mark.parametrize(
    "part",
    [
        "a", "a=", "a=1.1", "a=-0.1", "a=nan", "a=x", "a=0.5/", "a=0.5:0", "a=0.5:", "a=0.5:1.5", "a=0.5:99999999999",
        "a=0_1", "b=2", "branch=-1", "branch=inf", "burst=1.5", "c=-0.1", "c=1e9", "c=", "confident=2",
        "confident=yes", "says=1.1", "pass=20", "pass=ms",
        "pass=-1ms", "pass=2000s", "pass=1min", "seed=-1", "seed=1.5",
        "seed=18446744073709551616", "v=1", "v=0:0.02", "v=1:-0.1", "v=1:x", "v=1@0", "v=1@2/2@2", "v=1@4/2@2",
        "v=1@1/2", "v=1@1/", "v=@1", "v=0@1", "v=1@1.5",
    ],
)  # fmt: skip
def test_mistakes(part: str) -> None:
    name = part.partition("=")[0]
    with pytest.raises(DuoError) as e:
        parse(f"seed=1,{part}" if name != "seed" else part)
    assert repr(part) in str(e.value)
    assert PARTS[name] in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("spec", ["", "x=1", "a=0.8,", "a=0.8,,c=0.2", "A=0.8", "=1", "a:0.8"])
def test_unknown_parts(spec: str) -> None:
    with pytest.raises(DuoError, match="choose from a=, b=, "):
        parse(spec)


def test_twice() -> None:
    with pytest.raises(DuoError, match="has c twice"):
        parse("c=0.2,a=0.8,c=0.2")


def test_engine_refuses_invalid_options() -> None:
    o = _core.SyntheticOptions()
    o.a = []
    with pytest.raises(DuoError, match="a must be one or more values"):
        _core.Engine(o)


@pytest.fixture
def writer() -> Iterator[SyntheticWriter]:
    w = SyntheticWriter(parse("a=0.8,pass=1ms"), 40)
    yield w
    w.close()


def test_all_arms_write_the_same(writer: SyntheticWriter) -> None:
    plain = writer.write(QUESTION, PLAIN)
    assert len(plain) == 2
    assert plain[0].tokens != plain[1].tokens
    for arm in (Arm("sync 3", "sync", 3), Arm("async auto", "async", "auto"), Arm("async 4", "async", 4), PLAIN):
        for answer, expected in zip(writer.write(QUESTION, arm), plain, strict=True):
            assert list(answer.tokens) == list(expected.tokens)
            assert answer.warning == ""


def test_times_and_counts(writer: SyntheticWriter) -> None:
    plain = writer.write(QUESTION, PLAIN)[0]
    assert len(plain.tokens) == len(plain.t_us) == 40
    assert list(plain.t_us) == sorted(plain.t_us)
    assert plain.timings["predicted_ms"] >= 39 * 1.0  # a pass takes at least its time
    assert plain.timings["prompt_n"] == 32
    sync = writer.write(QUESTION, Arm("sync 3", "sync", 3))[0]
    assert sync.timings["draft_n"] > 0
    assert sync.timings["prompt_n"] == 32  # nothing is left of the answer before


def test_perfect_draft() -> None:
    w = SyntheticWriter(parse("a=1,pass=1ms"), 60)
    t = w.write(QUESTION, Arm("sync 3", "sync", 3))[0].timings
    w.close()
    assert t["draft_n"] == t["draft_n_accepted"] > 0


def test_long_texts_fit() -> None:
    w = SyntheticWriter(parse("pass=0us,c=0"), 9000)
    answer = w.write(Question(1, "made up", ("one",)), PLAIN)[0]
    w.close()
    assert len(answer.tokens) == 9000
