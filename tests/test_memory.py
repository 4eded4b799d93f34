"""Memory before anything is loaded, and who goes where: against libllama's own figures, and on made-up devices."""

import re
from pathlib import Path
from typing import Any

import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from duo import Duo, DuoError
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement.cache import BLOCKS, bytes_of
from duo.placement.fit import MARGIN, PlacementRequest, Room, place_layers
from duo.placement.kernels import available
from duo.placement.memory import Need, cells, context, most_layers, need_of, places
from duo.placement.resolve_auto import needs

GB = 10**9
TARGET, DRAFT = map(str, demo_pair())


def model(n_layer: int, layer: int, cache: int = 0, output: int = 0, work: int = 0, logits: int = 0) -> Need:
    return Need((layer,) * n_layer, (cache,) * n_layer, output, 0, work, logits)


BIG = model(80, 900_000_000, 17_000_000, GB, 100_000_000, 300_000_000)  # 70B in Q8_0
SMALL = model(32, 240_000_000, 17_000_000, GB // 2, 50_000_000, 280_000_000)  # 8B in Q8_0


def room(name: str, free: float, total: float = 0) -> Room:
    return Room(name, int(free * GB), int((total or free) * GB))


def target(devices: tuple[str, ...], layers: int | None = None, **more: Any) -> PlacementRequest:
    return PlacementRequest("target", BIG, devices, layers, "-ngl", **more)


def draft(devices: tuple[str, ...], layers: int | None = None, **more: Any) -> PlacementRequest:
    return PlacementRequest("draft", SMALL, devices, layers, "-ngld", **more)


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


def test_each_thread_of_duos_attention_keeps_scores_of_all_cells() -> None:
    h = read_header(TARGET)
    without, of_three = need_of(h, 4096), need_of(h, 4096, attention_threads=3)
    assert of_three.work - without.work == 3 * 32 * 4 * cells(4096, draft=False)

    def work(**options: Any) -> int:
        return needs(ModelOptions.of(engine_options(options), "target", TARGET), None, [h])[0].work

    stock = work(cpu_kernels="stock")
    assert work(flash_attn="off", n_threads=2) == work(flash_attn="off", n_threads=1)
    if available():
        assert work(n_threads=2) - stock == 2 * (work(n_threads=1) - stock) > 0


def test_a_cache_that_is_not_offloaded_is_the_hosts() -> None:
    h = read_header(TARGET)
    on_device, on_host = need_of(h, 512), need_of(h, 512, offload_kqv=False)
    assert on_host.total_cache == on_device.total_cache > 0
    whole = places(on_host, on_host.n_all, [1.0])
    assert whole.fixed[0] == places(on_device, on_device.n_all, [1.0]).fixed[0] - on_device.total_cache
    assert whole.host == on_host.host + on_host.total_cache + on_host.work  # the CPU computes attention
    assert whole.host_cache == on_host.total_cache and places(on_device, on_device.n_all, [1.0]).host_cache == 0
    assert places(on_device, 0, [1.0]).host_cache == on_device.total_cache


def test_contexts_are_those_that_the_engine_makes() -> None:
    assert context(None, 131072) == 4096
    assert context(0, 131072) == 131072
    assert context(8192, 4096) == 8192
    assert context(None, 2048, 8192) == 2048  # a draft's
    assert (cells(512, draft=False), cells(512, draft=True)) == (768, 1280)
    assert bytes_of(1024, "f16") == 2048
    assert bytes_of(1024, "q8_0") == 1088
    assert all(GGML_QUANT_SIZES[GGMLQuantizationType[t.upper()]] == size for t, size in BLOCKS.items())


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
