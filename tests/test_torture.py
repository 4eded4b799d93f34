"""The torture (benchmarks/torture): a few faults of each kind, and that it notices what it is for."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import HANG_S
from sizes import LARGE, size
from waits import wait_until

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is Linux that knows all processes")
pytest.importorskip("grpc")

from benchmarks.torture.headers.mutate import mutated  # noqa: E402
from benchmarks.torture.headers.parts import parts_of  # noqa: E402
from benchmarks.torture.judge import Seen, WrongError, check_end, check_sentence  # noqa: E402
from benchmarks.torture.kinds.all import KINDS  # noqa: E402
from benchmarks.torture.plan import batch_of, batches  # noqa: E402
from benchmarks.torture.report import sum_of  # noqa: E402

from duo.models.demo import demo_pair  # noqa: E402

# A kind of fault that crashes, one that loses a token, and one after which all is well.
BROKEN = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from benchmarks.torture import program
from benchmarks.torture.kind import Kind

class Odd(Kind):
    name, share, n_batch = "odd", 1, 4
    def fault(self, rng, seen):
        self.n = getattr(self, "n", 0) + 1
        right = self.room.right(rng)
        if self.n == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        seen.whole(right.tokens[: 7 - (rng.random() < 0.3)], right.tokens[:7])

program.KINDS = (Odd,)
program.main(["--faults", "12", "--headers", "0", "--workers", "2", "--out", sys.argv[2]])
"""
# All headers of this kind are wrong; they have the numbers of faults that crash.
HEADERS = """
from benchmarks.torture.judge import WrongError

class OddHeaders(Kind):
    name, share, n_batch = "mutated headers", 1, 8
    def fault(self, rng, seen):
        raise WrongError("an odd header")

program.Headers = OddHeaders
program.KINDS"""


# What each kind does to duo is tested where that part of duo is; here the kinds themselves are tried.
@pytest.mark.slow
@pytest.mark.daily
def test_a_few_faults_of_each_kind(tmp_path: Path) -> None:
    out, n_each, n_headers = tmp_path / "torture.json", size(1, 2), size(8, 150)
    command = [
        sys.executable,
        "-m",
        "benchmarks.torture",
        "--minutes",
        "5",
        "--each",
        str(n_each),
        "--headers",
        str(n_headers),
    ]
    done = subprocess.run([*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=4 * HANG_S)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    found = json.loads(out.read_text("utf-8"))
    assert found["failures"] == []
    assert {name for name, k in found["kinds"].items() if k["faults"]} >= {k.name for k in KINDS if not k.needs}
    assert found["headers"] == n_headers and found["faults"] >= n_each * (len(KINDS) - 1)
    assert sum(k["tokens"] for k in found["kinds"].values()) > 250 * n_each
    told = {name: sum(k["counts"].values()) for name, k in found["kinds"].items()}
    for kind in KINDS:  # which faults there were
        assert kind.name == "out of memory" or told[kind.name] >= n_each, told


@pytest.mark.daily
@pytest.mark.slow
def test_crashes_and_other_texts_are_told_though_a_header_has_their_numbers(tmp_path: Path) -> None:
    out = tmp_path / "torture.json"
    code = BROKEN.replace("\nprogram.KINDS", HEADERS).replace(
        '"--headers", "0", "--workers", "2"', '"--headers", "8", "--workers", "1"'
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), str(out)], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(out.read_text("utf-8"))
    headers = {f["number"] for f in found["failures"] if f["kind"] == "mutated headers"}
    crashes = {f["number"] for f in found["failures"] if f["kind"] == "odd" and "SIGSEGV" in f["what"]}
    assert headers == set(range(8)) and crashes & {4, 5, 6, 7}  # these headers come first
    assert any("6 tokens of 7" in f["what"] for f in found["failures"] if f["kind"] == "odd")
    assert (found["faults"], found["headers"]) == (12, 8)  # what a crash leaves is made by another process
    assert "--only" in done.stdout


def processes(with_variable: str) -> list[int]:
    """Those that were started with this in their environment, and what they have forked."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if with_variable.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # it has gone
            continue
    return found


@pytest.mark.daily
@pytest.mark.slow
@pytest.mark.random
@pytest.mark.parametrize("what", [signal.SIGINT, signal.SIGTERM] if LARGE else [signal.SIGTERM])
def test_an_interrupt_leaves_nothing(what: signal.Signals, tmp_path: Path) -> None:
    """No server, no mounted disk, no folder."""
    mine = f"TMPDIR={tmp_path}"
    command = [sys.executable, "-m", "benchmarks.torture", "--kinds", "vanish,disk", "--headers", "0", "--workers", "2"]
    p = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        wait_until(lambda: len(processes(mine)) >= 6)  # it, two workers, what forks for them, and a program
        p.send_signal(what)
        out, err = p.communicate(timeout=HANG_S)
        assert p.returncode == 130 and "interrupted after" in out and "Traceback" not in out + err, out + err
        wait_until(lambda: not processes(mine))
        assert list(tmp_path.iterdir()) == [] and str(tmp_path) not in Path("/proc/mounts").read_text()
    finally:
        for pid in processes(mine):
            os.kill(pid, signal.SIGKILL)


def test_a_run_that_goes_on_names_all_commits() -> None:
    one: dict[str, Any] = {"minutes": 1, "faults": 2, "headers": 3, "failures": [], "date": "a", "commit": "x",
                           "kinds": {"k": {"faults": 2, "counts": {"kill": 2}}}}  # fmt: skip
    two = {**one, "date": "b", "commit": "y", "kinds": {"k": {"faults": 5, "counts": {"kill": 1, "cut": 4}}}}
    both = sum_of(sum_of(one, two), {**one, "date": "c"})
    assert (both["commits"], both["runs"], both["faults"]) == (["x", "y"], ["a", "b", "c"], 6)
    assert both["kinds"]["k"] == {"faults": 9, "counts": {"kill": 5, "cut": 4}}


def test_a_seed_decides_what_a_fault_is() -> None:
    plan = list(batches(KINDS, 1, 3000))
    assert plan == list(batches(KINDS, 1, 3000)) != list(batches(KINDS, 2, 3000))
    assert sum(b.n for b in plan) == 3000 and {b.kind for b in plan} == set(KINDS)
    batch = batch_of(iter(plan), 1234)
    assert 1234 in batch.numbers and batch.rng(1234).random() == plan[0].rng(1234).random()
    parts, begin = parts_of(demo_pair()[1].read_bytes())
    assert parts.raw == demo_pair()[1].read_bytes()[:begin]
    several = [mutated(random.Random(i), parts) for i in range(50)]
    assert several == [mutated(random.Random(i), parts) for i in range(50)]
    assert sum(raw != parts.raw for _, raw, _ in several) > 40


def test_the_judge() -> None:
    seen = Seen()
    seen.part([1, 2], [1, 2, 3])
    seen.part([], [1])
    seen.whole([1, 2], (1, 2))
    assert (seen.texts, seen.cut, seen.tokens) == (1, 2, 4)
    for wrong in ([1, 3], [1, 2, 3, 4]):
        with pytest.raises(WrongError, match="differs"):
            seen.part(wrong, [1, 2, 3])
    with pytest.raises(WrongError, match="1 tokens of 2"):
        seen.whole([1], [1, 2])
    seen.ended([1], [1, 2], [1, 2, 3])
    for got, result in (([1, 2], [1]), ([1], [2, 2]), ([1], [1, 3])):  # lost, another one, wrong
        with pytest.raises(WrongError):
            seen.ended(got, result, [1, 2, 3])
    with pytest.raises(WrongError, match="at character 2"):
        seen.text_part("abX", "abc")
    check_end(1, "a first line\nduo: there is no such file\n", (0, 1))
    for code, err, why in ((-11, "", "SIGSEGV"), (1, "oh\n", "without a sentence"), (3, "", "exit code 3"),
                           (0, "Traceback (most", "Traceback")):  # fmt: skip
        with pytest.raises(WrongError, match=why):
            check_end(code, err, (0, 1))
    with pytest.raises(WrongError):
        check_sentence("two\nlines that say something")
