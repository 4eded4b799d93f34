"""`duo bench --placements`: one pair on one device, and on two."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from duo import BadValueError, DuoError
from duo.benchmark.bench import placed_run
from duo.benchmark.bench.arms import PLAIN, Arm
from duo.benchmark.bench.places import BenchPlacement, Place, parse_places, placements_of
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.record import MeasuredAnswer
from duo.placement.devices import Device

Run = Callable[..., tuple[int, str, str]]
CPU = Device("CPU", "a processor", "cpu", 1, 1)
GPUS = [Device(f"CUDA{i}", "a GPU", "gpu", 1, 1) for i in range(2)]
ASKED = [Question(i, "a", (f"question {i}",)) for i in range(2)]
two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")


def test_auto_prefers_gpus() -> None:
    assert [p.name for p in parse_places("auto", [CPU, *GPUS])] == ["CUDA0", "CUDA1"]
    assert [p.name for p in parse_places("auto", [CPU, GPUS[0]])] == ["CUDA0", "CPU"]
    assert parse_places("CUDA1, cpu", [CPU, *GPUS]) == (Place("CUDA1", "CUDA1"), Place("CPU", "none"))


@two_cpus
def test_auto_halves_the_cpus() -> None:
    a, b = parse_places("auto", [CPU])
    assert a.device == b.device == "none"
    assert a.cpus and len(a.cpus) == len(b.cpus) and not set(a.cpus) & set(b.cpus)
    mask, n = a.options("_draft")["cpu_mask_draft"], a.options("_draft")["n_threads_draft"]
    assert int(mask, 16) == sum(1 << i for i in a.cpus) and n == len(a.cpus)


@pytest.mark.parametrize(
    "text", ["CUDA0", "CUDA0,CUDA0", "CUDA0,CUDA7", "CUDA0,9000", "CUDA0,3-1", "0,0", "", "auto,CPU"]
)
def test_bad_places_are_refused(text: str) -> None:
    with pytest.raises(BadValueError, match="--placements"):
        parse_places(text, [CPU, *GPUS])


def test_what_is_compared() -> None:
    gpu, cpu = Place("CUDA0", "CUDA0"), Place("CPU", "none")
    found = placements_of(gpu, cpu, [2], ["auto"])
    assert [(p.name, p.has_draft) for p in found] == [
        ("target CUDA0", False),
        ("target CPU", False),
        ("target CUDA0, draft CUDA0", True),
        ("target CUDA0, draft CPU", True),
        ("target CPU, draft CUDA0", True),
    ]
    assert [a.name for a in found[-1].arms] == ["sync 2", "async auto"]
    halves = placements_of(Place("CPU 0-1", "none", (0, 1)), Place("CPU 2-3", "none", (2, 3)), [2], ["auto"])
    assert [p.name for p in halves][2:4] == ["target CPU 0-3", "target CPU 0-3, draft CPU 0-3"]


class Scripted:
    """Writes 10 tokens a second alone, 20 with a draft. A place may fail, or Ctrl-C may come there."""

    def __init__(self, fails: str = "", stops: str = "") -> None:
        self.opened: list[str] = []
        self._fails, self._stops = fails, stops

    @contextmanager
    def __call__(self, p: BenchPlacement) -> "Iterator[Scripted]":
        self.opened.append(p.name)
        if p.name == self._fails:
            raise DuoError("no memory")
        self._here = p
        yield self

    def write(self, question: Question, arm: Arm) -> Sequence[MeasuredAnswer]:
        if self._here.name == self._stops:
            raise KeyboardInterrupt
        ms = 500 if self._here.has_draft else 1000 if self._here.name == "target A" else 2000
        return [MeasuredAnswer([1] * 11, list(range(11)), {"predicted_n": 11, "predicted_ms": ms})]


def test_the_others_are_compared_with_the_first() -> None:
    writer, told = Scripted(), []
    places = placements_of(Place("A", "a"), Place("B", "b"), [2], ["auto"])
    found = placed_run.run(writer, ASKED, places, 2, 1, lambda *p: told.append(p))
    assert writer.opened == 2 * [p.name for p in places]
    figures = {p.placement.name: summaries for p, summaries in placed_run.figures_of(found)}
    ratios = {name: [s.to_plain.median for s in ss if s.to_plain] for name, ss in figures.items()}
    assert ratios == {
        "target A": [1.0],
        "target B": [0.5],
        "target A, draft A": [2.0, 2.0],
        "target A, draft B": [2.0, 2.0],
        "target B, draft A": [2.0, 2.0],
    }
    assert told[-1] == (2 * 3 * (1 + 1 + 2 + 2 + 2), 2 * 3 * 8, "")
    assert all(r.arm == PLAIN for r in found[0].records)


def test_a_placement_that_fails_stops_no_other() -> None:
    places = placements_of(Place("A", "a"), Place("B", "b"), [2], [])
    found = placed_run.run(Scripted(fails="target A, draft A"), ASKED, places, 2)
    assert [x.failure for x in found] == ["", "", "no memory", "", ""]
    assert [len(x.records) for x in found] == [4, 4, 0, 4, 4]


def test_ctrl_c_keeps_what_was_measured() -> None:
    places, told = placements_of(Place("A", "a"), Place("B", "b"), [2], []), []
    found = placed_run.run(Scripted(stops="target A, draft B"), ASKED, places, 1, 0, lambda *p: told.append(p))
    assert [len(x.records) for x in found] == [2, 2, 2, 0, 0]
    assert told[-1][0] < told[-1][1]
    with pytest.raises(KeyboardInterrupt):
        placed_run.run(Scripted(stops="target A"), ASKED, places)


@pytest.mark.daily
@pytest.mark.full
@two_cpus
def test_the_demo_pair_on_two_halves(run: Run, tmp_path: Path) -> None:
    short = ("-n", "12", "--questions", "1", "--repetitions", "1", "--temp", "0", "-c", "256")
    code, out, err = run("bench", "--placements", "auto", *short, "--json-file", str(tmp_path / "run.json"))
    assert code == 0, err
    assert "to target alone" in out and "hidden" in out
    made = json.loads((tmp_path / "run.json").read_text())
    assert made["complete"] and len(made["placements"]) == 6
    for p in made["placements"]:
        assert not p["failure"]
        assert [s["equal_share"] for s in p["summaries"]] == [1.0] * len(p["summaries"])
        assert len(p["summaries"]) == (3 if "draft" in p["name"] else 1)


def test_options_that_contradict_placements(run: Run) -> None:
    for more in (["-t", "2"], ["--slots", "2"], ["--csv", "x.csv"], ["-m", "a.gguf"]):
        code, _, err = run("bench", "--placements", "auto", *more)
        assert code == 1 and "--placements" in err
