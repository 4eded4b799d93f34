"""What the machine's memory must hold of the models, as it is estimated before they are loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gguf_files import tiny_mamba
from tiny_models import tiny

from duo import _core
from duo.errors import DoesNotFitError
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement import host_memory
from duo.placement.devices import Device
from duo.placement.host_memory import LAZY_TENSOR, lazy_bytes
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
    for options, advice in (({}, "lower -c or -ctxcp, "), ({"ctx_checkpoints": 0}, "lower -c, ")):
        with pytest.raises(DoesNotFitError, match=f"raise -ngl, {advice}"):
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
    n_cache = needs(made(target), None, [h])[0].total_cache
    monkeypatch.setattr(_core, "memory_available", lambda: target.stat().st_size + n_cache - size)
    resolve_auto(made(target, lazy_mode="on", cpu_kernels="stock"), None, [CPU])
    with pytest.raises(DoesNotFitError):
        resolve_auto(made(target, cpu_kernels="stock"), None, [CPU])
