"""What the machine's memory must hold of the models, as it is estimated before they are loaded."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bert_models import bert
from gguf_files import STR, U32, rewrite, tiny_mamba, write
from tiny_models import tiny

from duo import Duo, _core
from duo.cli.main import main
from duo.errors import DoesNotFitError, DuoError
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.models.projector import local_projector
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement import host_memory, packed
from duo.placement.devices import Device
from duo.placement.host_memory import LAZY_TENSOR, lazy_bytes
from duo.placement.memory import need_of
from duo.placement.place import place
from duo.placement.resolve_auto import needs, resolve_auto
from duo.placement.states import state_bytes

DRAFT = demo_pair()[1]
CPU, GPU = Device("CPU", "", "cpu", 1 << 34, 1 << 34), Device("CUDA0", "", "gpu", 1 << 34, 1 << 34)


def made(path: Path, **options: Any) -> ModelOptions:
    return ModelOptions.of(engine_options(options), "target", str(path))


def test_more_states_than_texts_usually_leave_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mamba = tiny_mamba(DRAFT, tmp_path / "mamba.gguf")
    h = read_header(mamba)

    def host(n: int) -> int:
        return needs(made(mamba, ctx_checkpoints=n), None, [h])[0].host

    assert host(32) == host(4) == host(0) + 4 * sum(state_bytes(h))
    monkeypatch.setattr(_core, "memory_available", lambda: 1)
    for options, advice in (({}, "lower -c/--ctx-size or -ctxcp/--"), ({"ctx_checkpoints": 0}, "lower -c/--ctx-size$")):
        with pytest.raises(DoesNotFitError, match=f"raise -ngl, or {advice}"):
            resolve_auto(made(mamba, n_gpu_layers=1, **options), None, [CPU, GPU])


def test_embeddings_that_stay_on_the_disk_need_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny("qwen4exp", DRAFT, tmp_path / "target.gguf")
    h = read_header(target)
    size = sum(t.n_bytes for t in h.tensors if t.name == LAZY_TENSOR)
    assert 0 < size == lazy_bytes(made(target, lazy_mode="on"), h, on_device=True)
    assert lazy_bytes(made(target), h, on_device=False) == lazy_bytes(made(target, lazy_mode="off"), h, on_device=False)
    monkeypatch.setattr(host_memory, "LAZY_LEAST", size - 1)
    assert [lazy_bytes(made(target), h, on_device=x) for x in (False, True)] == [size, 0]
    monkeypatch.undo()
    need = needs(made(target), None, [h])[0]
    n_cache = need.total_cache + need.marks
    monkeypatch.setattr(_core, "memory_available", lambda: target.stat().st_size + n_cache - size)
    resolve_auto(made(target, lazy_mode="on", cpu_kernels="stock"), None, [CPU])
    with pytest.raises(DoesNotFitError):
        resolve_auto(made(target, cpu_kernels="stock"), None, [CPU])


def test_states_of_prompts_count_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny("rwkv7", DRAFT, tmp_path / "target.gguf")
    h = read_header(target)
    states = sum(state_bytes(h))
    n_cache = needs(made(target), None, [h])[0].total_cache
    monkeypatch.setattr(_core, "memory_available", lambda: n_cache + 4 * states)
    resolve_auto(made(target, load_mode="mmap"), None, [CPU])
    monkeypatch.setattr(_core, "memory_available", lambda: n_cache + 4 * states - 1)
    with pytest.raises(DoesNotFitError, match="the cache needs"):
        resolve_auto(made(target, load_mode="mmap"), None, [CPU])
    resolve_auto(made(target, load_mode="mmap", ctx_checkpoints=3), None, [CPU])


def advice_of(monkeypatch: pytest.MonkeyPatch, free: int, m: ModelOptions, draft: ModelOptions | None = None) -> str:
    monkeypatch.setattr(_core, "memory_available", lambda: free)
    with pytest.raises(DoesNotFitError) as e:
        resolve_auto(m, draft, [CPU])
    return str(e.value).partition("free; ")[2]


def test_the_advice_fits_what_needs_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    target, h = demo_pair()[0], read_header(demo_pair()[0])
    m = made(target, n_ctx=4096, cpu_kernels="stock")
    n_cache, n_file = needs(m, None, [h])[0].total_cache, target.stat().st_size
    from_disk = "have them read from the disk again and again (--load-mode mmap, or duo pack)"
    assert advice_of(monkeypatch, n_cache - 1, m) == "lower -c/--ctx-size"
    assert advice_of(monkeypatch, n_file - 1, replace(m, n_ctx=8)) == f"choose smaller files, or {from_disk}"
    free = max(n_file, n_cache)
    assert advice_of(monkeypatch, free, m) == f"lower -c/--ctx-size, choose smaller files, or {from_disk}"
    draft = ModelOptions.of(engine_options({}), "draft", str(DRAFT))
    both = advice_of(monkeypatch, 1, m.for_texts(2), draft.for_texts(2))
    assert both == "lower -c/--ctx-size, -cd/--ctx-size-draft or -np/--parallel"
    # What is mapped need not fit, and is read from the disk already.
    monkeypatch.setattr(packed, "mapped_bytes", lambda _: n_file // 2)
    free = max(n_file // 2 + 1, n_cache)
    assert advice_of(monkeypatch, free, m) == "lower -c/--ctx-size, or choose smaller files"


def test_a_vocabulary_needs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "memory_available", lambda: 1)
    with Duo(demo_pair()[0], vocab_only=True, n_ctx=0, n_parallel="auto") as d:
        assert d.tokenize("Once")


def test_an_encoder_needs_no_cache_and_no_projector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = bert(tmp_path / "encoder.gguf")
    write(tmp_path / "mmproj-encoder.gguf", {"general.architecture": (STR, "clip")}, [])
    assert local_projector(str(file), "auto") is not None
    monkeypatch.setattr(_core, "memory_available", lambda: file.stat().st_size)
    with Duo(file, embedding=True, mmproj="auto", cpu_kernels="stock") as d:
        assert d.embed("a")


def test_a_draft_of_a_verify_host_has_the_hosts_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = rewrite(DRAFT, tmp_path / "draft.gguf", put={"llama.context_length": (U32, 16384)})
    m = ModelOptions.of(engine_options({"load_mode": "mmap", "cpu_kernels": "stock"}), "draft", str(draft))
    for n_ctx, n_remote, n in ((None, 8192, 8192), (0, 32768, 16384), (1024, 8192, 1024)):
        n_cache = need_of(read_header(draft), n, draft=True).total_cache
        monkeypatch.setattr(_core, "memory_available", partial(int, n_cache))
        place(None, replace(m, n_ctx=n_ctx), n_ctx_remote=n_remote)
        monkeypatch.setattr(_core, "memory_available", partial(int, n_cache - 1))
        with pytest.raises(DoesNotFitError, match=r"lower -cd/--ctx-size-draft$"):
            place(None, replace(m, n_ctx=n_ctx), n_ctx_remote=n_remote)


def test_guesses_of_a_draft_elsewhere_need_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = str(tiny("qwen35", DRAFT, tmp_path / "target.gguf")), str(DRAFT)
    h = read_header(target)
    more = 7 * sum(state_bytes(h))  # a state and 8 snapshots, not 2 states
    alone = needs(made(Path(target)), None, [h])[0].total_cache
    assert needs(made(Path(target), draft_host="127.0.0.1:1"), None, [h])[0].total_cache == alone + more
    seen: list[ModelOptions] = []

    def placed(m: ModelOptions) -> None:
        seen.append(m)
        raise DuoError("enough")

    monkeypatch.setattr("duo.placement.place.place_alone", placed)
    for line in (["verify-host", "-m", target], ["draft-host", "-md", draft]):
        assert main([*line, "--listen", "127.0.0.1:0"]) == 1
    assert needs(seen[0], None, [h])[0].total_cache == alone + more
    assert not seen[1].guesses
