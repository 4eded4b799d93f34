"""Memory before anything is loaded, and who goes where: against libllama's own figures, and on made-up devices."""

import re
from pathlib import Path
from typing import Any

import pytest

from duo import Duo, DuoError, _core
from duo.errors import DoesNotFit
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.options.model import ModelOptions
from duo.options.tables import ENGINE_OPTIONS
from duo.placement.devices import Device, default_devices
from duo.placement.fit import MARGIN, Room, Wish, place_layers
from duo.placement.memory import Need, bytes_of, cells, context, most_layers, need_of, places
from duo.placement.resolve_auto import needs, resolve_auto

GB = 10**9
TARGET, DRAFT = map(str, demo_pair())


def model(n_layer: int, layer: int, cache: int = 0, output: int = 0, work: int = 0, logits: int = 0) -> Need:
    return Need((layer,) * n_layer, (cache,) * n_layer, output, 0, work, logits)


BIG = model(80, 900_000_000, 17_000_000, GB, 100_000_000, 300_000_000)  # 70B in Q8_0
SMALL = model(32, 240_000_000, 17_000_000, GB // 2, 50_000_000, 280_000_000)  # 8B in Q8_0


def room(name: str, free: float, total: float = 0) -> Room:
    return Room(name, int(free * GB), int((total or free) * GB))


def target(devices: tuple[str, ...], layers: int | None = None, **more: Any) -> Wish:
    return Wish("target", BIG, devices, layers, "-ngl", **more)


def draft(devices: tuple[str, ...], layers: int | None = None, **more: Any) -> Wish:
    return Wish("draft", SMALL, devices, layers, "-ngld", **more)


def both(o: Any) -> tuple[ModelOptions, ModelOptions]:
    return ModelOptions.of(o, "target", TARGET), ModelOptions.of(o, "draft", DRAFT)


# ---- sizes


@pytest.mark.parametrize(
    "options",
    [{"n_ctx": 512}, {"n_ctx": 200, "type_k": "q8_0", "type_v_draft": "q8_0"}, {"n_ctx": 1, "n_ctx_draft": 300}],
)
def test_the_cache_is_as_large_as_libllama_says(options: dict[str, Any], tmp_path: Path) -> None:
    with Duo(log_file=tmp_path / "log", **options) as d:
        found = needs(*both(d.options), [read_header(TARGET), read_header(DRAFT)])
    log = (tmp_path / "log").read_text()
    mib = [float(x) for x in re.findall(r"llama_kv_cache: size = +([\d.]+) MiB", log)]
    assert [round(n.total_cache / 2**20, 2) for n in found] == mib


def test_weights_are_all_of_the_files() -> None:
    for path in (TARGET, DRAFT):
        h = read_header(path)
        need = need_of(h, 512)
        assert need.total_weights == sum(t.n_bytes for t in h.tensors)
        assert 0.95 < need.total_weights / h.n_file_bytes <= 1
        assert need.n_all == h.n_layer + 1
        assert need.host == next(t.n_bytes for t in h.tensors if t.name == "token_embd.weight")


def test_tensors_that_stay_on_the_cpu_are_the_hosts() -> None:
    h = read_header(TARGET)
    all_on_device, without = need_of(h, 512), need_of(h, 512, overrides=[("ffn_(up|down)", "CPU"), ("attn", "CUDA0")])
    moved = sum(t.n_bytes for t in h.tensors if "ffn_up" in t.name or "ffn_down" in t.name)
    assert without.host == all_on_device.host + moved
    assert sum(without.weights) == sum(all_on_device.weights) - moved
    assert need_of(h, 512, overrides=[("(", "CPU")]) == all_on_device  # no pattern: the engine says so
    assert need_of(h, 512, overrides=[("ffn_up", "CUDA0"), ("ffn_(up|down)", "CPU"), ("ffn_down", "CUDA0")]) == need_of(
        h, 512, overrides=[("ffn_down", "CPU")]
    )  # the first that fits counts


def test_contexts_are_those_that_the_engine_makes() -> None:
    assert context(None, 131072) == 4096
    assert context(0, 131072) == 131072
    assert context(8192, 4096) == 8192
    assert context(None, 2048, 8192) == 2048  # a draft's
    assert (cells(512, draft=False), cells(512, draft=True)) == (768, 1280)
    assert bytes_of(1024, "f16") == 2048
    assert bytes_of(1024, "q8_0") == 1088


# ---- places


def test_the_last_layers_go_first_and_the_output_matrix_counts_as_one() -> None:
    m = model(4, 10, 1, output=100, work=1000, logits=5000)
    assert places(m, 0, [1.0]).devices == (0,)
    assert places(m, 1, [1.0]).fixed == (100,)
    assert places(m, 3, [1.0]).fixed == (100 + 2 * 11,)
    assert places(m, 3, [1.0]).host == 2 * 11 + 1000
    assert places(m, 99, [1.0]).devices == (100 + 4 * 11 + 5000,)
    assert places(m, 99, [1.0]).host == 0
    assert places(m, 99, []).host == 100 + 4 * 11 + 5000


def test_layers_are_split_over_devices_by_their_shares() -> None:
    m = model(7, 10, output=10)
    assert places(m, 8, [3.0, 1.0]).fixed == (60, 20)
    assert places(m, 8, [0.0, 1.0]).fixed == (0, 80)
    assert places(m, 4, [1.0, 1.0]).fixed == (20, 20)


def test_the_most_layers_that_fit_are_found() -> None:
    m = model(10, 10, output=10, work=5, logits=7)
    assert most_layers(m, [117]) == 11
    assert most_layers(m, [116]) == 10
    assert most_layers(m, [16]) == 0
    assert most_layers(m, [17]) == 1
    assert most_layers(m, [0, 0]) == 0
    n = most_layers(m, [60, 60])
    assert all(b <= 60 for b in places(m, n, [60, 60]).devices)
    assert n > most_layers(m, [60])


# ---- plans


def test_the_draft_goes_first_and_the_target_gets_what_is_left() -> None:
    p = place_layers(target(("GPU",)), draft(("GPU",)), [room("GPU", 24)])
    assert p.draft is not None and p.draft.n_gpu_layers == SMALL.n_all
    used = p.draft.bytes.devices[0] + p.target.bytes.devices[0]
    assert used <= 24 * GB - MARGIN
    assert used + 917_000_000 > 24 * GB - MARGIN  # not one layer more
    assert 0 < p.target.n_gpu_layers < 20
    assert p.line() == (
        f"placement: draft whole on GPU (9.0 GB); target {p.target.n_gpu_layers} of 81 layers on GPU "
        f"({p.target.bytes.devices[0] / GB:.1f} GB), the rest on the CPU ({p.target.bytes.host / GB:.1f} GB)"
    )


def test_with_two_devices_the_draft_is_on_one() -> None:
    p = place_layers(target(("A", "B")), draft(("A", "B")), [room("A", 80), room("B", 24)])
    assert p.draft is not None and p.draft.devices == ("A",)
    assert p.target.n_gpu_layers == BIG.n_all
    for name, free in (("A", 80), ("B", 24)):
        used = sum(b for x in (p.draft, p.target) for d, b in zip(x.devices, x.bytes.devices, strict=True) if d == name)
        assert used <= free * GB - MARGIN


def test_a_draft_has_the_device_that_it_was_given() -> None:
    p = place_layers(target(("A",)), draft(("B",), device_given=True), [room("A", 80), room("B", 12)])
    assert p.draft is not None and p.draft.devices == ("B",)
    assert (p.draft.n_gpu_layers, p.target.n_gpu_layers) == (SMALL.n_all, BIG.n_all)


def test_what_the_user_fixed_comes_first() -> None:
    p = place_layers(target(("GPU",), layers=20), draft(("GPU",)), [room("GPU", 24)])
    assert p.draft is not None and 0 < p.draft.n_gpu_layers < SMALL.n_all
    assert p.target.n_gpu_layers == 20 and not p.target.auto and p.draft is not None and p.draft.auto


def test_the_error_names_the_most_layers_that_fit() -> None:
    with pytest.raises(DuoError) as e:
        place_layers(target(("GPU",), layers=81), None, [room("GPU", 24)])
    most = place_layers(target(("GPU",)), None, [room("GPU", 24)]).target.n_gpu_layers
    assert str(e.value) == (
        f"the target needs 74.4 GB on GPU, but only 24.0 GB are free; "
        f"give at most -ngl {most} (of 81 layers), or -ngl auto"
    )
    with pytest.raises(DuoError, match=r"needs 8\.7 GB on GPU, but only 4\.0 GB are free; give at most -ngld \d+ \("):
        place_layers(target((), layers=0), draft(("GPU",), layers=33), [room("GPU", 4)])


def test_without_room_or_devices_all_is_on_the_cpu() -> None:
    for devices in ((), ("GPU",)):
        p = place_layers(target(devices), draft(devices), [room("GPU", 0.1)])
        assert p.draft is not None
        assert (p.draft.n_gpu_layers, p.target.n_gpu_layers) == (0, 0)
        assert p.line() == "placement: draft on the CPU (9.0 GB); target on the CPU (74.7 GB)"


def test_shares_that_the_user_gave_are_kept() -> None:
    p = place_layers(target(("A", "B"), shares=(3.0, 1.0)), None, [room("A", 40), room("B", 40)])
    assert p.target.shares == (3.0, 1.0)
    a, b = p.target.bytes.devices
    assert a > 2 * b > 0


# ---- options


def options(**given: Any) -> tuple[ModelOptions, ModelOptions]:
    auto = {"n_gpu_layers": "auto", "n_gpu_layers_draft": "auto"}
    return both({n: o.default for n, o in ENGINE_OPTIONS.items()} | auto | given)


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
    with pytest.raises(DoesNotFit, match=r"needs .* on CUDA0, but only .* are free; give at most -ngld 0 \("):
        resolve_auto(*options(n_gpu_layers_draft="all"), full)
    other = [CPU, Device("Vulkan0", "", "gpu", GB // 10, 80 * GB)]
    assert resolve_auto(*options(n_gpu_layers=2), other)[0].n_gpu_layers == 2


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
    with pytest.raises(DoesNotFit, match=r"the draft needs .* give at most -ngld 0"):
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
    monkeypatch.setattr(_core, "memory_available", lambda: 1_000_000)
    with pytest.raises(DuoError, match=r"need \d+ MB of the machine's memory, but only 1 MB are free; choose"):
        Duo(n_ctx=256)
    with Duo(n_ctx=256, load_mode="mmap") as d:
        assert d.generate("Once", max_tokens=2).tokens
