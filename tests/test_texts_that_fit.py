"""`n_parallel="auto"`: as many texts at once as memory holds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT
from gguf_files import tiny_mamba
from prompts import LONG

from duo import Duo, _core
from duo.cli.main import main
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.options.model import ModelOptions
from duo.placement.memory import Need
from duo.placement.resolve_auto import needs, resolve_auto

TARGET, DRAFT = demo_pair()
# Log-probabilities are equal only if all bits are.
GREEDY: dict[str, Any] = {"max_tokens": 30, "temperature": 0, "ignore_eos": True, "logprobs": 1}


def of_both(**options: Any) -> tuple[ModelOptions, ModelOptions]:
    from duo.options.validate import engine_options

    o = engine_options({"n_parallel": "auto", "device": "none", **options})
    return ModelOptions.of(o, "target", str(TARGET)), ModelOptions.of(o, "draft", str(DRAFT))


def total(n_contexts: int, **options: Any) -> int:
    from dataclasses import replace

    found = [replace(m, n_contexts=n_contexts) for m in of_both(**options)]
    need: list[Need] = needs(found[0], found[1], [read_header(TARGET), read_header(DRAFT)])
    return sum(n.total for n in need)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_as_many_texts_as_memory_allows(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    size = total(n, n_ctx=8192)
    assert size < total(n + 1, n_ctx=8192)
    monkeypatch.setattr(_core, "memory_available", lambda: size * 16 // 15 + 100)  # a sixteenth stays free
    target, draft, _ = resolve_auto(*of_both(n_ctx=8192), [])
    assert draft is not None
    assert (target.n_parallel, target.n_contexts, draft.n_parallel, draft.n_contexts) == (n, n, n, n)


def test_the_cache_of_auto_is_as_large_as_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Duo(TARGET, DRAFT, n_ctx=300, n_parallel="auto", log_file=tmp_path / "log", **EXACT) as d:
        n = d.n_parallel
        assert n == 4  # on every machine that runs tests
        assert d.target.n_ctx == 300
        found = d.generate_many([p[:600] for p in LONG], **GREEDY)
        many = [r.tokens for r in found]
        headers = [read_header(TARGET), read_header(DRAFT)]
        target, draft, _ = resolve_auto(*of_both(n_ctx=300), [])
        sizes = [round(x.total_cache / 2**20, 2) for x in needs(target, draft, headers)]
    log = (tmp_path / "log").read_text()
    assert sizes == [float(x) for x in re.findall(r"llama_kv_cache: size = +([\d.]+) MiB", log)]
    with Duo(TARGET, n_ctx=300, **EXACT) as d:
        assert d.n_parallel == 1
        assert [d.generate(p[:600], **GREEDY).tokens for p in LONG] == many
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(json.dumps(p[:300]) for p in LONG))
    arguments = [
        "-m",
        str(TARGET),
        "-f",
        str(file),
        "-np",
        "auto",
        "-cram",
        "16",
        "-n",
        "8",
        "--temp",
        "0",
        "-c",
        "300",
    ]
    assert main(arguments) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(LONG)


def test_auto_gives_a_recurrent_model_several_texts(tmp_path: Path) -> None:
    mamba = tiny_mamba(DRAFT, tmp_path / "mamba.gguf")
    asked: dict[str, Any] = {"max_tokens": 5, "temperature": 0, "ignore_eos": True}
    with Duo(mamba, n_ctx=256, n_parallel="auto") as d:
        assert d.n_parallel == 4
        found = [r.tokens for r in d.generate_many(["a b c", "the old king", "once"], **asked)]
    with Duo(mamba, n_ctx=256) as d:
        assert found == [d.generate(p, **asked).tokens for p in ("a b c", "the old king", "once")]
