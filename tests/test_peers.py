"""benchmarks/run_peers.py: turns, comparisons, tables, and one run on the demo target."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_files import ROOT

sys.path.insert(0, str(ROOT))

from benchmarks import peer_figures, peer_page, run_peers
from benchmarks.peer_process import EndedError, Interpreter, Peer, ik_interpreter
from benchmarks.peer_programs import Worker

from duo.models.demo import demo_pair

ARGS = argparse.Namespace(rounds=3, prompts=1, texts=2, n=4)
IK = "ik_llama.cpp"


class ScriptedPeer:
    """Answers at once: passes of `ms` a row, and the same text and logits; `breaks`: the order at which it ends."""

    def __init__(self, name: str, asked: list[tuple[str, str]], ms: float, breaks: str = "") -> None:
        self.about = {"version": "1", "compiled for": ["AVX2", "FMA"]}
        self._name, self._asked, self._ms, self._breaks = name, asked, ms, breaks

    def ask(self, do: str, **order: Any) -> Any:
        self._asked.append((self._name, do))
        if do == self._breaks:
            raise EndedError("exit status -6: S > 0")
        if do == "row":
            changed = self._name == IK and order["width"] == 8
            Path(order["file"]).write_bytes(np.array([1, 2.5 if changed else 2], np.float32).tobytes())
        answers = {"passes": [self._ms, 9e9, self._ms * len(order.get("tokens", ()))], "prompt": 1000 * self._ms}
        answers |= {"tokenize": list(range(50)), "text": [[1, 2, 3, 4 if self._name != IK else 5], 20 / self._ms]}
        return answers.get(do)


def scripted(breaks: str = "") -> tuple[run_peers.Race, list[tuple[str, str]]]:
    asked: list[tuple[str, str]] = []
    peers: dict[str, Any] = {
        "llama.cpp": ScriptedPeer("llama.cpp", asked, 4),
        IK: ScriptedPeer(IK, asked, 1, breaks),
        "duo": ScriptedPeer("duo", asked, 2),
    }
    race = run_peers.Race(peers, {}, "a file")
    race.run(ARGS)
    return race, asked


def page_of(race: run_peers.Race) -> list[str]:
    run = {"file": "a.gguf", "threads": 1, "n_tokens": ARGS.n, "left_out": race.left_out}
    run["programs"] = json.loads(json.dumps(peer_figures.record(race.figures)))
    found = {"machine": "M", "flags": ["avx2"], "cores": "0", "command": "c", "runs": {"a": run}}
    return peer_page.page(found).splitlines()


def test_programs_take_turns_and_are_compared() -> None:
    race, asked = scripted()
    turns = [name for name, do in asked if do == "passes"]
    assert [turns[i] for i in (0, 3, 6, 9)] == [IK, "duo", "llama.cpp", IK]
    assert all(turns.count(name) == 3 * 4 for name in race.peers)
    lines = page_of(race)
    assert "* **ik_llama.cpp**: version 1; compiled for AVX2 FMA" in lines
    assert "| a.gguf | ik_llama.cpp | 1.0 | 2.0 | 4.0 | 8.0 | 2.00 | 4.00 | 8.00 | 512.0 | 20.0 |" in lines
    assert "| a.gguf | ik_llama.cpp | 0.50 | 0.50 | 0.50 | 0.50 | 0.50 | 0.50 |" in lines
    [ours] = [line for line in lines if line.startswith("| a.gguf | duo | `")]
    [ik] = [line for line in lines if line.startswith("| a.gguf | ik_llama.cpp | `")]
    assert len(set(ours.split(" | ")[2:6])) == 1 and len(set(ik.split(" | ")[2:6])) == 2
    assert ours.endswith("| 0 | 0 | 0 | 2 of 2 | 2 of 2 |")
    assert ik.endswith("| 0.5 | 0 | 0 | 0 of 2, from token 4 on | 0 of 2, from token 4 on |")


def test_a_program_that_ends_is_left_out_and_named() -> None:
    race, asked = scripted(breaks="prompt")
    assert list(race.figures) == ["llama.cpp", "duo"]
    assert [do for name, do in asked if name == IK][-1] == "prompt"
    assert "ik_llama.cpp was left out with a.gguf: exit status -6: S > 0 (prompt)." in page_of(race)


class ScriptedProgram:
    def __init__(self) -> None:
        self.about: dict[str, Any] = {}
        self.decoded: list[tuple[int, int, bool]] = []

    def decode(self, tokens: Any, pos: int, *, only_last: bool) -> float:
        self.decoded.append((len(tokens), pos, only_last))
        return float(len(self.decoded))

    def last_row(self) -> Any:
        return np.array([1, 2], np.float32)

    def write(self, prompt: list[int], n: int) -> tuple[list[int], float]:
        return prompt[:n], 1.0


def test_a_worker_reads_the_context_when_it_has_to(tmp_path: Path) -> None:
    program = ScriptedProgram()
    worker = Worker(program)
    passes = {"context": [1, 2, 3], "tokens": [4, 5], "n": 2}
    assert worker.answer({"do": "passes", **passes}) == [3, 4]  # the first pass is not counted
    assert worker.answer({"do": "passes", **passes}) == [6, 7]
    worker.answer({"do": "prompt", "tokens": [7] * 9})
    worker.answer({"do": "passes", **passes})
    file = tmp_path / "row"
    worker.answer({"do": "row", "context": [1], "tokens": [1, 2, 3, 4], "width": 2, "file": str(file)})
    context, narrow = (3, 0, True), [(2, 3, False)] * 3
    assert program.decoded == [
        context, *narrow, *narrow, (9, 0, True), context, *narrow, (1, 0, True), (2, 1, False), (2, 3, False)
    ]  # fmt: skip
    assert np.frombuffer(file.read_bytes(), np.float32).tolist() == [1, 2]
    assert worker.answer({"do": "text", "prompt": [1, 2, 3], "n": 2}) == ([1, 2], 1.0)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"cannot import ik_llama_cpp \(.+\); run `python -m venv"):
        ik_interpreter(tmp_path)
    with pytest.raises(SystemExit, match="is no Python interpreter"):
        ik_interpreter(tmp_path / "python")
    with pytest.raises(EndedError, match="exit status 1: the model could not be loaded"):
        Peer("llama.cpp", Interpreter(), tmp_path / "none.gguf", [0])


@pytest.mark.daily
def test_duo_beside_llama_cpp_on_the_demo_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "peers.json"
    few = "--programs llama.cpp,duo --cores 0 --threads 1 --rounds 1 --prompts 1 --texts 1 -n 8"
    monkeypatch.setattr(sys, "argv", ["run_peers", str(demo_pair()[0]), *few.split(), "--out", str(out)])
    monkeypatch.chdir(tmp_path)
    run_peers.main()
    [run] = json.loads(out.read_text())["runs"].values()
    stock, ours = run["programs"]["llama.cpp"], run["programs"]["duo"]
    assert len(set(ours["logits"].values())) == 1 and ours["difference"]["itself"] == 0
    assert 0 < ours["difference"]["llama.cpp"] < 0.5 * stock["deviation_of_logits"]
    assert ours["n_equal_tokens"] == {"llama.cpp": [8], "duo": [8]}
    assert all(row["prompt_per_s"] and row["ms"]["8"]["median"] > 0 for row in (stock, ours))
