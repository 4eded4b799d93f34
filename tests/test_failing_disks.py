"""A disk that fails while a text is written: the text ends with one sentence, and what was written stays."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT, needs_kernels
from failing_disk import failing_disk
from packed_files import packed_file
from trained_files import MIXTURE

from duo import Duo, DuoError, _core
from duo.gguf_tools.widen import widen

pytestmark = [
    needs_kernels,
    pytest.mark.daily,  # test_lost_files cuts files, which the system reports in the same way
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="file systems need Linux and root"),
]

N_BEFORE, N_TOKENS = 8, 24


@pytest.mark.parametrize("foresight", ["off", "always"])  # a pass reads what is missing, or the fetcher before it
def test_a_disk_that_fails(foresight: str, tmp_path: Path) -> None:
    model = tmp_path / "mixture.gguf"
    widen(MIXTURE, model, n_ff=64)  # so wide that duo's kernels compute all of it
    asked: dict[str, Any] = {"max_tokens": N_TOKENS, "temperature": 0, "ignore_eos": True, "mode": "plain"}
    _core.foresee_experts(foresight)
    try:
        with (
            failing_disk(packed_file(model), tmp_path / "on-disk.packed") as disk,
            Duo(model, packed=str(disk.file), n_ctx=256, **EXACT) as d,
        ):
            target = d.engine.target
            assert target is not None and target.packed_file
            seen: list[int] = []

            def fail_in_between(_ids: Any, scores: Any) -> Any:
                seen.append(1)
                if len(seen) == N_TOKENS + N_BEFORE:
                    disk.fail()
                return scores

            asked["logits_processor"] = fail_in_between
            right = d.generate("Once upon a time", **asked).tokens
            assert len(seen) == len(right) == N_TOKENS
            n_read = target.n_read_ahead
            with pytest.raises(DuoError, match=r"on-disk\.packed can no longer be read: its disk failed") as e:
                list(d.stream("Once upon a time", cache_prompt=False, **asked))
            written = e.value.result.tokens
            assert N_BEFORE - 1 <= len(written) < N_TOKENS and written == right[: len(written)]
            if foresight == "always":
                assert target.n_read_ahead > n_read
        with Duo(model, packed="off", n_ctx=256, **EXACT) as whole:
            assert whole.generate("Once upon a time", **asked).tokens == right
    finally:
        _core.foresee_experts("off")
