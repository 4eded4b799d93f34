"""deploy/ray_serve.py under load: a replica is added, killed, replaced (benchmarks/run_ray.py does it)."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
N_PLACES = 2  # of a replica there


def python_with_ray() -> str:
    """DUO_TEST_RAY names the Python of an environment with ray[serve] and duo."""
    if importlib.util.find_spec("ray"):
        return sys.executable
    if (other := os.environ.get("DUO_TEST_RAY")) is None:
        pytest.skip("Ray is not installed here; DUO_TEST_RAY may name a Python that has ray[serve] and duo")
    return other


@pytest.mark.proof
def test_no_request_that_waits_is_lost(tmp_path: Path) -> None:
    """Ray does not write again what the killed replica had begun: so many requests fail at most, as it had places."""
    out = tmp_path / "ray.json"
    command = [python_with_ray(), "-m", "benchmarks.run_ray", "--seconds", "3", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(out.read_text("utf-8"))
    written = {"stream: written", "whole: written"}
    for phase, counts in found["requests"].items():
        assert all(counts.get(what, 0) > 0 for what in written), (phase, counts)
        failed = {what: n for what, n in counts.items() if what not in written}
        if phase == "a replica is killed":
            assert failed.keys() <= {"stream: begun, cut off", "whole: status 500"}, failed
            assert 0 < sum(failed.values()) <= N_PLACES, failed
        else:
            assert not failed, (phase, failed)
    assert len(found["requests"]) == 3 and found["different_texts"] == 1
