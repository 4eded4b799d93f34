"""-ngl auto, -ngld auto and devices: what becomes of the options, on made-up devices and here."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from gguf_files import U32, rewrite
from test_drop_in_load import lora_of
from test_memory import GB, both
from tiny_models import tiny

from duo import Duo, DuoError, _core
from duo.errors import DoesNotFitError
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.options.model import ModelOptions
from duo.options.tables import ENGINE_OPTIONS
from duo.placement.devices import Device, default_devices
from duo.placement.resolve_auto import needs, resolve_auto
from duo.placement.states import N_MARKS, state_bytes


def options(**given: Any) -> tuple[ModelOptions, ModelOptions]:
    auto = {"n_gpu_layers": "auto", "n_gpu_layers_draft": "auto"}
    return both({n: o.default for n, o in ENGINE_OPTIONS.items()} | auto | given)


@pytest.fixture(scope="module")
def long_target(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The demo target, as if it had been made for long texts."""
    to = tmp_path_factory.mktemp("long") / "long.gguf"
    return str(rewrite(demo_pair()[0], to, put={"llama.context_length": (U32, 16384)}))


CPU = Device("CPU", "cpu", "cpu", 16 * GB, 32 * GB)


def test_auto_becomes_numbers_on_made_up_devices() -> None:
    gpus = [Device("A", "", "gpu", GB, GB), Device("B", "", "gpu", 2 * GB, 2 * GB), CPU]
    t, d, p = resolve_auto(*options(), gpus)
    assert p is not None and d is not None
    assert (t.n_gpu_layers, d.n_gpu_layers) == (5, 3)
    assert d.devices == ("B",)
    assert t.tensor_split[1] > t.tensor_split[0]
    with pytest.raises(DuoError, match="-mg is 2, but there are 2 devices, counted from 0"):
        resolve_auto(*options(split_mode="none", main_gpu=2), gpus)
    _, _, p = resolve_auto(*options(split_mode="none", main_gpu=1), gpus)
    assert p is not None and p.target.devices == ("B",)


@pytest.mark.parametrize(
    ("gpu", "given", "n_ctx", "layers"),
    [
        (GB, {"fit_ctx": 512}, 16384, 5),  # all of the model's own fits
        (45_000_000, {"fit_ctx": 512}, 4352, 5),  # as much as the device holds
        (20_000_000, {"fit_ctx": 512}, 512, 4),  # the least, and layers leave the device
        (20_000_000, {"fit_ctx": 65536}, 16384, 0),
        (45_000_000, {"fit_ctx": 512, "n_ctx": 1024}, 1024, 5),  # -c counts more
        (45_000_000, {"fit_ctx": 0, "n_gpu_layers": 0}, 16384, 0),  # of the machine's memory
        (45_000_000, {"n_ctx": 4608}, 4608, 4),  # a larger one takes a layer away
        (45_000_000, {}, None, 5),
    ],
)
def test_the_context_is_fitted_if_its_least_is_given(
    gpu: int, given: dict[str, Any], n_ctx: int | None, layers: int, long_target: str
) -> None:
    o = {n: o.default for n, o in ENGINE_OPTIONS.items()} | {"n_gpu_layers": "auto", **given}
    t, _, _ = resolve_auto(ModelOptions.of(o, "target", long_target), None, [Device("A", "", "gpu", gpu, gpu), CPU])
    assert (t.n_ctx, t.n_gpu_layers) == (n_ctx, layers)


@pytest.mark.parametrize(
    ("gpu", "given", "n_ctx", "texts"),
    [
        (45_000_000, {}, 2048, 1),  # 4352 without a draft
        (45_000_000, {"n_parallel": "auto"}, 512, 3),  # as many texts as hold the least
        (60_000_000, {"n_parallel": "auto"}, 1024, 4),
    ],
)
def test_the_context_is_fitted_to_a_draft_and_to_several_texts(
    gpu: int, given: dict[str, Any], n_ctx: int, texts: int, long_target: str
) -> None:
    o = {n: o.default for n, o in ENGINE_OPTIONS.items()} | {"n_gpu_layers": "auto", "fit_ctx": 512, **given}
    o |= {"n_gpu_layers_draft": "auto"}
    target, draft = ModelOptions.of(o, "target", long_target), options(**o)[1]
    t, d, _ = resolve_auto(target, draft, [Device("A", "", "gpu", gpu, gpu), CPU])
    assert d is not None
    assert (t.n_ctx, t.n_parallel, d.n_parallel) == (n_ctx, texts, texts)


def test_a_tight_device_takes_the_draft_and_a_part_of_the_target() -> None:
    gpu = Device("A", "", "gpu", 30_000_000, 30_000_000)
    t, d, p = resolve_auto(*options(n_ctx=512), [gpu, CPU])
    assert p is not None and p.draft is not None and d is not None
    assert d.n_gpu_layers == 3 == p.draft.n_all
    assert t.n_gpu_layers in (1, 2, 3)
    assert "the rest on the CPU" in p.line()


@pytest.mark.parametrize("given", [{}, {"device": "none", "device_draft": ["none"]}])
def test_without_a_device_auto_is_none(given: dict[str, Any]) -> None:
    devices = [CPU] if not given else [CPU, Device("A", "", "gpu", GB, GB)]
    t, d, p = resolve_auto(*options(**given), devices)
    assert d is not None
    assert (t.n_gpu_layers, d.n_gpu_layers, p) == (0, 0, None)


def test_by_default_a_full_gpu_is_left_alone() -> None:
    """One that is too full to be asked reports no memory. What libllama would take there is not taken."""
    for free, total in ((0, 0), (GB // 10, 80 * GB), (GB, 80 * GB)):
        t, d, p = resolve_auto(*options(), [CPU, Device("CUDA0", "", "gpu", free, total)])
        assert p is not None and d is not None
        assert (t.n_gpu_layers, t.devices, d.n_gpu_layers, d.devices) == (0, ("none",), 0, ("none",))
    t, d, p = resolve_auto(*options(), [CPU, Device("CUDA0", "", "gpu", 2 * GB, 80 * GB)])
    assert d is not None and p is not None and p.auto_is_all
    assert (t.n_gpu_layers, d.n_gpu_layers) == (5, 3)


@pytest.mark.parametrize(
    "given",
    [
        {"strict": True},
        {"op_offload": False},
        {"override_tensor": "ffn=CPU", "override_tensor_draft": "ffn=CPU"},
        {"cpu_moe": True},
    ],
)
def test_a_full_gpu_is_left_alone_whatever_else_is_asked(given: dict[str, Any]) -> None:
    t, d, _ = resolve_auto(*options(**given), [CPU, Device("CUDA0", "", "gpu", 0, 0)])
    assert d is not None
    assert (t.n_gpu_layers, t.devices, d.n_gpu_layers, d.devices) == (0, ("none",), 0, ("none",))


def test_of_several_gpus_a_full_one_is_left_alone() -> None:
    gpus = [Device("CUDA0", "", "gpu", 0, 0), Device("CUDA1", "", "gpu", 20 * GB, 24 * GB)]
    t, d, p = resolve_auto(*options(), [CPU, *gpus])
    assert d is not None and p is not None and p.auto_is_all
    assert (t.devices, t.tensor_split, d.devices) == (("CUDA1",), (), ("CUDA1",))
    t, _, _ = resolve_auto(*options(override_tensor="ffn=CUDA0"), [CPU, *gpus])
    assert t.devices == ()  # it was named


@pytest.mark.parametrize("free", [0, GB // 10, GB // 4])
def test_layers_are_refused_where_the_driver_would_have_no_memory(free: int) -> None:
    full = [CPU, Device("CUDA0", "", "gpu", free, 80 * GB if free else 0)]
    with pytest.raises(DoesNotFitError, match=r"needs .* on CUDA0, but only .* are free; give at most -ngld 0 \("):
        resolve_auto(*options(n_gpu_layers_draft="all"), full)
    other = [CPU, Device("Vulkan0", "", "gpu", GB // 10, 80 * GB)]
    assert resolve_auto(*options(n_gpu_layers=2), other)[0].n_gpu_layers == 2


def test_a_cache_on_the_cpu_needs_no_room_on_the_device() -> None:
    gpu = Device("A", "", "gpu", 100_000_000, 100_000_000)
    given = {"n_ctx": 100_000, "flash_attn": "on", "n_ubatch": 32}
    with pytest.raises(DoesNotFitError, match="the target needs"):
        resolve_auto(options(n_gpu_layers="all", **given)[0], None, [CPU, gpu])
    for layers in ("all", "auto"):
        o = options(n_gpu_layers=layers, offload_kqv=False, **given)[0]
        _, _, p = resolve_auto(o, None, [CPU, gpu])
        assert p is not None and p.target.n_gpu_layers == 5 and p.target.bytes.host > 200_000_000


def file_of(path: Path, n_bytes: int) -> str:
    path.touch()
    os.truncate(path, n_bytes)
    return str(path)


def test_a_projector_has_room_beside_the_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(tmp_path / "mmproj.gguf", 30_000_000)
    gpus = [Device("A", "", "gpu", 60_000_000, 60_000_000), Device("B", "", "gpu", GB, GB)]

    def layers(**given: Any) -> int:
        o = options(**{"n_ctx": 512, "device": "A", **given})[0]
        _, _, p = resolve_auto(o, None, [*gpus, CPU])
        assert p is not None
        return p.target.n_gpu_layers

    assert layers() == layers(mmproj=file, mmproj_device="B") == layers(mmproj=file, mmproj_offload=False) == 5
    assert layers(mmproj=file) < 5  # a half of it again is for what it computes
    assert layers(mmproj=file, n_gpu_layers="all", device="B") == 5
    gpus[0] = Device("A", "", "gpu", 35_000_000, 60_000_000)
    with pytest.raises(DoesNotFitError, match=r"the target with the projector needs 4\d MB on A, but only 35 MB are"):
        layers(mmproj=file, n_gpu_layers="all")
    assert layers(n_gpu_layers="all") == 5
    monkeypatch.setattr(_core, "memory_available", lambda: 30_000_000)
    for given in ({}, {"device": "none"}):
        with pytest.raises(DoesNotFitError, match=r"the models need \d+ MB of the machine's memory"):
            resolve_auto(options(n_ctx=512, mmproj=file, mmproj_offload=False, **given)[0], None, [*gpus, CPU])


def test_adapters_are_beside_the_layers_that_they_change(tmp_path: Path) -> None:
    adapter = str(lora_of(tmp_path / "lora.gguf", 1))
    h, devices = read_header(demo_pair()[0]), [CPU, Device("A", "", "gpu", GB, GB)]
    without, one, two = (
        needs(options(n_ctx=512, **given)[0], None, [h], devices)[0]
        for given in ({}, {"lora": [adapter]}, {"lora_scaled": {adapter: 0.5, f"{tmp_path}/./lora.gguf": 1.0}})
    )
    n_bytes = sum(t.n_bytes for t in read_header(adapter).tensors)
    assert one.total_weights == without.total_weights + n_bytes > without.total_weights
    assert {b - a for a, b in zip(without.weights, one.weights, strict=True)} == {n_bytes // h.n_layer}
    assert two.total_weights == without.total_weights + 2 * n_bytes
    kept = needs(options(n_ctx=512, lora=[adapter], override_tensor="ffn_down=CPU")[0], None, [h], devices)[0]
    assert kept.host > one.host + sum(t.n_bytes for t in h.tensors if "ffn_down" in t.name)


@pytest.mark.parametrize("name", ["deepseek2", "qwen35"])  # caches of keys only, and of some layers
def test_a_context_on_the_cpu_is_refused_only_if_it_does_not_fit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tiny(name, demo_pair()[1], tmp_path / "target.gguf")
    o = {n: x.default for n, x in ENGINE_OPTIONS.items()} | {"n_ctx": 100_000, "cpu_kernels": "stock"}
    m, h = ModelOptions.of(o, "target", str(target)), read_header(target)
    width = h.key_length if name == "deepseek2" else 2 * 2 * h.key_length  # of one head's keys, or keys and values
    n_attending = sum(n > 0 for n in h.n_head_kv)
    states = (2 + N_MARKS) * sum(state_bytes(h))
    n_bytes = target.stat().st_size + 100_096 * 2 * width * n_attending + states
    assert n_attending == (2 if name == "deepseek2" else 1)
    monkeypatch.setattr(_core, "memory_available", lambda: n_bytes)
    resolve_auto(m, None, [CPU])
    monkeypatch.setattr(_core, "memory_available", lambda: n_bytes - 200_000)
    with pytest.raises(DoesNotFitError, match=r"lower -c/--ctx-size.*, choose smaller files"):
        resolve_auto(m, None, [CPU])


def test_default_devices_are_those_of_llama_cpp() -> None:
    small, remote = Device("iGPU", "", "igpu", 0, 0), Device("RPC0", "", "rpc", GB, GB)
    gpus = [Device("CUDA0", "", "gpu", GB, GB, "0000:01:00.0"), Device("Vulkan0", "", "gpu", GB, GB, "0000:01:00.0")]
    unknown = [Device("A", "", "gpu", GB, GB), Device("B", "", "gpu", GB, GB)]
    assert default_devices([CPU, small, remote]) == ("iGPU",)
    assert default_devices([CPU, small, *gpus, remote]) == ("CUDA0",)  # one card, two backends
    assert default_devices([CPU, *unknown]) == ("A", "B")
    assert default_devices([CPU, remote]) == ()


def test_remote_devices_take_part_when_they_are_named() -> None:
    devices = [CPU, Device("iGPU", "", "igpu", 0, 0), Device("RPC0", "", "rpc", GB, GB)]
    assert resolve_auto(*options(), [CPU, devices[2]])[2] is None
    _, _, p = resolve_auto(*options(device="iGPU", device_draft="RPC0"), devices)
    assert p is not None and p.draft is not None
    assert (p.target.devices, p.draft.devices) == (("iGPU",), ("RPC0",))
    assert p.target.n_gpu_layers == 5  # it reports no memory: the machine's is its own


@pytest.mark.parametrize("layers", ["auto", "all", 0, 3])
def test_an_unknown_device_is_the_same_mistake_for_any_number_of_layers(layers: object) -> None:
    devices = [CPU, Device("A", "", "gpu", GB, GB)]
    why = re.escape("unknown device X; choose from none, A; duo --list-devices shows them")
    for given in ({"device": "X", "n_gpu_layers": layers}, {"device_draft": "A,X", "n_gpu_layers_draft": layers}):
        with pytest.raises(DuoError, match=why):
            resolve_auto(*options(**given), devices)
    with pytest.raises(DuoError, match=why):
        resolve_auto(options(device_draft="X", n_gpu_layers_draft=layers)[1], None, devices)
    with pytest.raises(DuoError, match=r"unknown device X; .*duo --list-devices"):
        Duo(device="X", n_gpu_layers=layers)


def test_a_device_may_be_written_small() -> None:
    t, d, p = resolve_auto(*options(device="a", device_draft="a"), [CPU, Device("A", "", "gpu", GB, GB)])
    assert p is not None and p.target.devices == ("A",) and d is not None
    assert (t.n_gpu_layers, d.n_gpu_layers) == (5, 3)


def test_the_draft_of_a_host_is_placed_like_the_draft_of_a_pair() -> None:
    gpus = [Device("A", "", "gpu", GB, GB), Device("B", "", "gpu", 2 * GB, 2 * GB), CPU]
    alone, _, p = resolve_auto(options()[1], None, gpus)
    assert p is not None and p.draft is None and p.target.what == "draft"
    assert (alone.n_gpu_layers, alone.devices) == (3, ("B",))
    tiny = [Device("A", "", "gpu", 1_000_000, 1_000_000), CPU]
    with pytest.raises(DoesNotFitError, match=r"the draft needs .* give at most -ngld 0"):
        resolve_auto(options(n_gpu_layers_draft="all")[1], None, tiny)


def test_auto_runs_here() -> None:
    with Duo(n_ctx=256, n_gpu_layers="auto", n_gpu_layers_draft="auto", device="none", device_draft="none") as d:
        assert d.placement is None
        assert d.generate("Once", max_tokens=2).text
    with pytest.raises(DuoError, match="tensor_split \\(-ts\\) is 'x', but input should be a share for each device"):
        Duo(tensor_split="x")


def test_models_that_the_machine_cannot_hold_are_refused_before_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_core, "memory_available", lambda: 5_000_000)
    with pytest.raises(DuoError, match=r"need \d+ MB of the machine's memory, but only 5 MB are free; choose"):
        Duo(n_ctx=256)
    with Duo(n_ctx=256, load_mode="mmap") as d:
        assert d.generate("Once", max_tokens=2).tokens
    with pytest.raises(DuoError, match=r"the cache needs \d+ MB .*, but only 5 .*; lower -c/--ctx-size or -cd/"):
        Duo(n_ctx=4096, load_mode="mmap")  # it is in no file
    monkeypatch.setattr(_core, "memory_available", lambda: 15_000_000)
    with pytest.raises(DuoError, match=r"the cache needs \d+ MB .*, but only 15 MB are free; lower -c"):
        Duo(n_ctx=4096)
