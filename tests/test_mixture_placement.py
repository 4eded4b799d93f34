"""-ngl auto of a mixture: as few experts as possible stay on the CPU, and everything else goes to the device."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from model_files import Shape, random_model

from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement.compatibility import check_pair
from duo.placement.devices import Device
from duo.placement.fit import ModelPlacement
from duo.placement.resolve_auto import resolve_auto, with_experts_placed

N_LAYER = 6
CPU = Device("CPU", "", "cpu", 10**10, 10**10)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("mixture") / "mixture.gguf"
    random_model(path, "mixtral", "Q8_0", Shape(n_ff=1024, n_layer=N_LAYER))
    yield str(path)
    path.unlink()


def devices(n_bytes: int) -> list[Device]:
    return [Device("GPU", "", "gpu", n_bytes, n_bytes), CPU]


def options(path: str, **given: object) -> ModelOptions:
    o = {"n_gpu_layers": "auto", "n_ctx": 256, "n_ubatch": 32, "n_parallel": 1, "cpu_kernels": "stock", **given}
    return ModelOptions.of(engine_options(o), "target", path)


def placed(path: str, n_bytes: int, **given: object) -> ModelPlacement:
    _, _, p = resolve_auto(options(path, **given), None, devices(n_bytes))
    assert p is not None
    return p.target


def bytes_of(path: str, what: str) -> int:
    return sum(t.n_bytes for t in read_header(path).tensors if what in t.name)


def test_as_few_experts_as_possible_stay_on_the_cpu(mixture: str) -> None:
    whole = placed(mixture, 10**9)
    assert whole.n_gpu_layers == N_LAYER + 1 and not whole.n_cpu_moe
    assert whole.line().startswith("target whole on GPU")
    size, of_layer = whole.bytes.devices[0], bytes_of(mixture, "_exps") // N_LAYER
    seen = set()
    for missing in (1000, of_layer // 2, 2 * of_layer, 5 * of_layer):
        n_bytes = (size - missing) * 16 // 15 + 16  # a sixteenth of a small device stays free
        p = placed(mixture, n_bytes)
        assert p.n_gpu_layers == p.n_all and p.bytes.devices[0] <= size - missing
        seen.add(p.n_cpu_moe)
        # With the experts of one layer more on the device, not all of the rest would fit.
        fewer = placed(mixture, n_bytes, n_cpu_moe=p.n_cpu_moe - 1, n_gpu_layers="auto" if p.n_cpu_moe > 1 else "all")
        assert fewer.n_gpu_layers < fewer.n_all or fewer.bytes.devices[0] > n_bytes * 15 // 16
        assert p.bytes.devices[0] + p.n_cpu_moe * of_layer == pytest.approx(size, rel=0.1)
    assert min(seen) == 1 and len(seen) >= 3
    assert "layers on GPU" in p.line() and f"the experts of its first {p.n_cpu_moe} layers on the CPU" in p.line()


def test_where_even_that_is_too_much_all_experts_stay_and_more_layers_go(mixture: str) -> None:
    rest = placed(mixture, 10**9, cpu_moe=True).bytes.devices[0]
    p = placed(mixture, rest)  # a sixteenth less than it takes
    assert p.n_cpu_moe == N_LAYER and 0 < p.n_gpu_layers < p.n_all
    assert "the other layers and the experts of its first 6 layers on the CPU" in p.line()
    assert p.n_gpu_layers > placed(mixture, rest, override_tensor="nothing=CPU").n_gpu_layers


def test_the_user_counts_more(mixture: str) -> None:
    size = placed(mixture, 10**9).bytes.devices[0]
    for given in ({"n_gpu_layers": 3}, {"n_cpu_moe": 1}, {"override_tensor": "ffn_up_exps=CPU"}, {"device": "none"}):
        o = options(mixture, **given)
        assert with_experts_placed(o, None, devices(size)) == o


def test_two_devices_get_whole_layers(mixture: str) -> None:
    half = placed(mixture, 10**9).bytes.devices[0] // 2
    two = [Device(name, "", "gpu", half, half) for name in ("A", "B")]
    _, _, p = resolve_auto(options(mixture), None, [*two, CPU])
    assert p is not None and not p.target.n_cpu_moe and 0 < p.target.n_gpu_layers < p.target.n_all


def test_a_dense_model_is_left_alone() -> None:
    o = options(str(demo_pair()[0]))
    assert with_experts_placed(o, None, devices(6_000_000)) == o


def test_the_pattern_is_ncmoes(mixture: str) -> None:
    size = placed(mixture, 10**9).bytes.devices[0]
    found = with_experts_placed(options(mixture), None, devices(size * 3 // 4))
    assert found.n_cpu_moe
    by_hand = options(mixture, n_cpu_moe=found.n_cpu_moe)
    assert replace(found, n_cpu_moe=0) == by_hand


def test_check_says_it(mixture: str) -> None:
    size = placed(mixture, 10**9).bytes.devices[0]
    draft = Path(demo_pair()[1])
    c = check_pair(mixture, draft, devices(size), n_ctx=256, n_ubatch=32)
    assert c.placement.target.n_cpu_moe == c.as_dict()["placement"]["target"]["n_cpu_moe"] > 0
    assert "the experts of its first" in c.placement.line()
