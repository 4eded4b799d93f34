"""Long lines, long words, and long runs of spaces. libllama splits those of many vocabularies by std::regex, which
calls itself once for each character (llama.cpp's src/unicode.cpp): 35,000 of them would end a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gguf_files import STR, rewrite
from sizes import mostly_daily

from duo import BadValueError, Duo
from duo.models.demo import demo_pair

READ = """
import sys
from duo import Duo
with Duo(sys.argv[1], n_ctx=64) as d:
    for c in ("A", " ", "天", "word "):
        text = c * 60_000
        assert d.detokenize(d.tokenize(text)).decode().strip() == text.strip(), c
print("all")
"""


@pytest.mark.parametrize("kind", mostly_daily(["gpt-4o", "tekken", "deepseek-v3", "exaone-moe"], ["deepseek-v3"]))
def test_a_word_of_60000_characters_is_read(kind: str, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    rewrite(demo_pair()[1], model, put={"tokenizer.ggml.pre": (STR, kind)})
    child = subprocess.run([sys.executable, "-c", READ, model], capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout.strip()) == (0, "all"), child.stderr[-2000:]


def test_a_word_that_no_stack_is_for_is_refused(target_alone: Duo) -> None:
    with pytest.raises(BadValueError, match="2000000 bytes without a line end, 1048576 at most"):
        target_alone.tokenize("a" * 2_000_000)
