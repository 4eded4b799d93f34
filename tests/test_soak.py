"""The soak of a server (benchmarks/soak.py): a short one, and that it notices what it is for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import HANG_S
from served import served

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.servers.cases import cases, questions  # noqa: E402
from benchmarks.servers.load import Client, Wrong, plain_texts  # noqa: E402
from benchmarks.soak import EMPTY, GROWTH, N_CTX, grown  # noqa: E402


@pytest.mark.proof  # CI runs the soak itself
def test_mixed_load_changes_no_text_and_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", "0.15", "--laps", "3", "--clients", "6"]
    done = subprocess.run([*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=4 * HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text("utf-8"))
    assert found["n_wrong"] == 0 and found["generated_tokens"] > 100
    assert len(found["laps"]) == 4 and all(x["own"] > 1 for x in found["laps"])


def lap(**more: float) -> dict[str, float]:
    flat = {**dict.fromkeys(GROWTH, 10.0), **dict.fromkeys(EMPTY, 0.0), "cache_tokens": 100.0}
    return {**flat, **more}


def test_growth_is_told() -> None:
    assert grown([lap()] * 9) == []
    assert grown([lap(threads=10.0 + i % 3) for i in range(9)]) == []  # up and down
    found = grown([lap(own=100.0 + 10 * i, threads=10.0 + i, files=10.0 + i) for i in range(9)])
    assert found == ["own grew from 110 to 170", "threads grew from 11 to 17", "files grew from 11 to 17"]
    assert grown([*[lap()] * 8, lap(texts_open=1.0)]) != []
    assert grown([lap(cache_tokens=N_CTX + 1.0)]) == [f"the cache holds {N_CTX + 1} tokens, {N_CTX} is its size"]


def test_other_texts_and_statuses_are_told() -> None:
    asked = [c for c in cases(4) if c.name in ("native 0", "chat", "messages")]
    with served() as s:
        right = plain_texts(s.url, asked)
        wrong = Wrong()
        client = Client(s.url, asked, questions(), right, wrong, 1)
        for case in asked:
            client.whole(case)
            client.stream(case)
        client.close()
        assert wrong.told == []
        other: dict[str, Any] = {name: text + "!" for name, text in right.items()}
        client = Client(s.url, asked, questions(), other, wrong, 1)
        for case in asked:
            client.whole(case)
            client.stream(case)
        client.close()
        assert wrong.n == 6 and all("instead of" in x for x in wrong.told)
