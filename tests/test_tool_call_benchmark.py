"""benchmarks/measure_tool_calls.py: a few chats of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from other_vocabularies import thinned
from real_files import ROOT

sys.path.insert(0, str(ROOT))

from benchmarks.measure_tool_calls import Wish, measure, record, table
from benchmarks.tool_call_pairs import Drafted

from duo.benchmark.prove.run import Proof
from duo.cli.prove_pair import Load, load_of_file
from duo.models.demo import demo_pair

TARGET, DRAFT = map(str, demo_pair())


@pytest.mark.daily
@pytest.mark.full
def test_calls_under_a_draft_of_another_vocabulary_are_plains(tmp_path: Path) -> None:
    draft = thinned(Path(DRAFT), tmp_path / "thinned.gguf", 0.3)
    drafted = Drafted("demo", TARGET, (Load(load_of_file(str(draft)).guesses[:1], str(draft)),))
    proof = Proof()
    *_, target = measure(drafted, Wish(4, (3,), 1, ("sync",)), proof)
    found = record(drafted, proof, target)
    first, *rows = found["rows"]
    assert (first["n_texts"], first["draft_n"]) == (4, 0)
    assert [(r["case"], r["n_texts"]) for r in rows] == [("sync, whole", 3), ("sync, streamed", 3)]
    for row in rows:
        assert row["n_different"] == row["n_bad_arguments"] == row["n_failed"] == 0, found["findings"]
        assert row["draft_n"] > row["draft_n_accepted"] > 0, "wrong guesses are taken back"
    assert list(table({"demo": found}))[-1].startswith("| demo | draft model | 6 | 0 | 0 |")
