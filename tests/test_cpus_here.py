"""How many threads the program really starts on this machine, limited by taskset, OpenMP and control groups."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from waits import first_bytes, in_time

from duo.models.demo import demo_pair
from duo.placement import cpus
from duo.placement.cpus import core_cpus, usable_cores

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo target, as large as one that a team of threads pays for: there is a hole behind its weights."""
    path = tmp_path_factory.mktemp("target") / "target.gguf"
    shutil.copyfile(demo_pair()[0], path)
    os.truncate(path, 70_000_000)
    return path


def threads_of(
    target: Path, *options: str, before: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> tuple[int, int]:
    """Of duo as a program, behind a command like taskset: the threads it speaks of in its first line, and the fewest
    that the process has while it writes."""
    command = [
        *before,
        sys.executable,
        "-m",
        "duo",
        "-m",
        str(target),
        "-c",
        "4000",
        "-p",
        "Once",
        "-n",
        "-1",
        "-dev",
        "none",
    ]
    with subprocess.Popen(
        [*command, "--ignore-eos", "--seed", "1", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **(env or {})},
    ) as p:  # fmt: skip
        assert p.stderr is not None
        try:
            with in_time(p):
                line = p.stderr.readline().decode()
            match = re.search(r"on CPU \(([0-9]+) threads?,", line)
            assert match, line
            counts = []
            for _ in range(5):  # a thread of the start may still end
                assert len(first_bytes(p, 50)) == 50
                counts.append(len(os.listdir(f"/proc/{p.pid}/task")))
            return int(match[1]), min(counts)
        finally:
            p.kill()


several = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or usable_cores() < 2, reason="needs two cores that this process may use"
)


@pytest.mark.daily
@several
def test_taskset_and_openmps_variables(target: Path) -> None:
    one, free = threads_of(target, "-t", "1"), threads_of(target)
    assert one[0] == 1
    assert free[0] == usable_cores()
    assert free[1] - one[1] >= usable_cores() - 1
    # In all not exactly as many: other libraries count CPUs too.
    for limited in (
        threads_of(target, before=("taskset", "-c", str(core_cpus()[-1]))),
        threads_of(target, env={"OMP_NUM_THREADS": "1,4"}),
        threads_of(target, env={"OMP_THREAD_LIMIT": "1"}),
    ):
        assert limited[0] == 1 and limited[1] <= one[1]


@pytest.fixture(params=["version 2", "version 1"])
def limited(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A control group of one CPU's worth of time, made below this process's own."""
    for group in cpus._groups(cpus.ROOT):
        child = group / f"duo-test-{os.getpid()}"
        with suppress(OSError):
            child.mkdir()
            try:
                if request.param == "version 2":
                    (child / "cpu.max").write_text("100000 100000")
                else:
                    (child / "cpu.cfs_period_us").write_text("100000")
                    (child / "cpu.cfs_quota_us").write_text("100000")
            except OSError:
                child.rmdir()
                continue
            yield child
            for pid in (child / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            child.rmdir()
            return
    pytest.skip(f"no control group of {request.param} with the cpu controller can be made here")


@pytest.mark.daily  # test_cpus reads such groups
@several
def test_a_container_of_one_cpu_starts_one_thread(limited: Path, target: Path) -> None:
    enter = f'echo $$ > "{limited}/cgroup.procs" && exec "$@"'
    inside, one = threads_of(target, before=("sh", "-c", enter, "sh")), threads_of(target, "-t", "1")
    assert inside[0] == 1 and inside[1] <= one[1]
