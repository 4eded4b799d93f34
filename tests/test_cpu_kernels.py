"""duo's CPU kernels: whole models with random weights, against stock kernels and against themselves at other widths.

On random weights a rounding of an input the other way changes logits by some parts in a thousand; an error of the
kernels changes them altogether.
"""

import os
import platform
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import needs_kernels, run_python
from gguf_files import Array
from model_files import (
    ARCHITECTURES,
    CHILD,
    N_PRODUCTS,
    TYPES,
    Shape,
    assert_same_bits,
    options,
    random_model,
    run,
)  # fmt: skip
from sizes import LARGE, mostly_daily
from waits import join
from weight_types import USUAL, each_type

from duo import DuoError, _core
from duo.benchmark import doctor
from duo.models.demo import demo_pair
from duo.options import experts

NEAR = {"bf16": 0.008, "f16": 0.002}  # relative RMS distance of a row from stock's: thrice what is seen
NEAR_CODES = 0.05  # the same where inputs are rounded to 8 bits
OTHERS = tuple(kind for kind in TYPES if kind not in USUAL)
WITH_EXPERTS = {"few": ("q4_K", "bf16"), "usual": ("q8_0", "iq3_s"), "others": OTHERS}
MIXED = ("q4_K+q6_K", "q5_K+q6_K")  # the second is V's, as in files of type Q4_K_M
FLOAT_SUMS = 1e-12  # squared error of sums of floats; how many of them are added at once differs
ODD = Shape(n_ff=576, n_vocab=4103, n_head=8, n_head_kv=1)  # panels and blocks that are not full
ISAS = ("portable", "avx2", "avx_vnni", "avx512", "avx512_bf16", "amx", "amx_emulated", "neon_dot", "neon_i8mm")

pytestmark = [needs_kernels, pytest.mark.full]
ModelMaker = Callable[..., Path]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelMaker:
    """Paths of random models by architecture, type and shape; each is written once."""
    folder = tmp_path_factory.mktemp("random")
    known: dict[tuple[str, str, Shape | None], Path] = {}

    def get(architecture: str, kind: str, shape: Shape | None = None) -> Path:
        key = (architecture, kind, shape)
        if key not in known:
            most, _, of_v = kind.partition("+")
            path = folder / f"{len(known)}.gguf"
            known[key] = random_model(path, architecture, lambda n: of_v if of_v and "attn_v" in n else most, shape)
        return known[key]

    return get


def assert_near_stock(path: Path, p: _core.Probe, tolerance: float) -> None:
    widths = (24, 1, 8, 2)
    ours, stock = run(p, *widths), run(_core.Probe(options(path, ())), *widths)
    distance = np.sqrt(((ours - stock) ** 2).mean(1) / (stock**2).mean(1))
    assert np.isfinite(ours).all()
    assert distance.max() < tolerance, f"row {distance.argmax()} is {distance.max():.2g} away"


@pytest.mark.slow
@each_type(*ARCHITECTURES, few=("qwen2", "qwen3", "gemma", "mixtral"), daily=("llama", "mixtral"))
def test_logits_are_stocks_and_every_product_is_taken(architecture: str, kind: str, model: ModelMaker) -> None:
    path = model(architecture, kind)
    p = _core.Probe(options(path, (kind,)))
    assert p.n_duo_products == p.n_cpu_products == N_PRODUCTS and p.same_bits
    assert_near_stock(path, p, NEAR.get(kind, NEAR_CODES))
    assert _core.cpu_types(str(path), 0) == [kind]


# The C++ tests compare the kernels of all types with sums in double precision.
@pytest.mark.parametrize("kind", mostly_daily(TYPES, USUAL))
def test_kernels_round_no_more_than_stocks(kind: str, model: ModelMaker) -> None:
    path = str(model("llama", kind))
    assert _core.cpu_types(path, 0) == [kind]
    error = doctor.accuracy(path, kind)
    assert 0 < error.duo < max(1.05 * error.stock, FLOAT_SUMS)


@pytest.mark.random
@each_type("llama", "gemma", few=("gemma",), daily=("llama",), kinds=TYPES + MIXED)
def test_same_bits_at_every_width_and_thread_count(architecture: str, kind: str, model: ModelMaker) -> None:
    assert_same_bits(model(architecture, kind), threads=(1, 2, 3) if LARGE else (1,))
    if not LARGE:  # which rows a thread takes depends on the type's panels, and hardly on the width
        assert_same_bits(model(architecture, kind), widths=(1, 2, 7, 33), threads=(2, 3) if kind in USUAL else (3,))


@pytest.mark.slow
@pytest.mark.random
@pytest.mark.parametrize("which", mostly_daily(WITH_EXPERTS, ["few"]))
def test_same_bits_with_experts(which: str, model: ModelMaker) -> None:
    for kind in WITH_EXPERTS[which]:  # threads divide experts whatever their type is
        assert_same_bits(model("mixtral", kind), 40, (1, 3, 8, 33), (1, 3) if LARGE or kind in USUAL else (1,))


def test_routers_of_experts_are_duos_if_all_else_is(model: ModelMaker, tmp_path: Path) -> None:
    """With stock kernels for a router each pass would have a second row, with experts of its own."""
    assert not _core.Probe(options(model("mixtral", "q4_K"), ("q4_K",))).uses_stock
    one = Shape(n_layer=1)
    path = random_model(tmp_path / "m.gguf", "mixtral", lambda name: "q1_0" if name == "output.weight" else "q4_K", one)
    assert _core.Probe(options(path)).uses_stock
    # Of another type; the type is none that a draft's packing or a race should know.
    path = random_model(tmp_path / "f16.gguf", "mixtral", lambda name: "f16" if "gate_inp" in name else "q4_K", one)
    assert not _core.Probe(options(path, ("q4_K",))).uses_stock and _core.cpu_types(str(path), 0) == ["q4_K"]
    assert_same_bits(path, widths=(1, 2, 9), threads=(1, 2))


def test_products_of_kinds_that_duo_does_not_know_are_counted(model: ModelMaker) -> None:
    p = _core.Probe(options(model("minicpm3", "q4_K")))
    assert p.n_cpu_products == 2 * 8 + 1
    assert p.same_bits == (p.n_duo_products == p.n_cpu_products)


@pytest.mark.parametrize("kind", ["q8_0", "q4_K", "bf16"])
def test_same_bits_after_a_long_context(kind: str, model: ModelMaker) -> None:
    assert_same_bits(model("llama", kind), n_context=600, widths=(1, 2, 7, 16), threads=(1, 2))


# That all widths give the same bits is shown for each type above.
@pytest.mark.parametrize("kind", mostly_daily(TYPES, USUAL))
def test_same_bits_however_the_prompt_is_split(kind: str, model: ModelMaker) -> None:
    p = _core.Probe(options(model("qwen2", kind)))
    whole = run(p, 100, 2)
    for widths in ((7,) * 14 + (2, 2), (99, 1, 1, 1), (1, 64, 35, 2), (63, 37, 2)):
        assert (run(p, *widths) == whole).all(), f"split as {widths}"


@each_type("llama", "gemma", few=("gemma",), daily=("llama",))
def test_rows_that_do_not_fill_panels_and_blocks(architecture: str, kind: str, model: ModelMaker) -> None:
    in_256 = kind.endswith("K") or kind.startswith(("iq1", "iq2", "iq3", "iq4_xs", "tq"))
    path = model(architecture, kind, Shape(n_vocab=4103, n_head=8, n_head_kv=1) if in_256 else ODD)
    p = _core.Probe(options(path))
    assert p.n_duo_products == p.n_cpu_products and p.n_vocab == 4103
    assert_near_stock(path, p, NEAR.get(kind, NEAR_CODES))
    assert_same_bits(path, widths=(1, 3, 8, 9), threads=(1, 3))


@pytest.mark.parametrize(
    ("architecture", "shape", "kind"),
    [  # SmolLM2-135M as Q4_1, and Qwen2.5-0.5B as Q4_K_M: Q5_0 where K-quants do not fit, Q8_0 for V
        ("llama", Shape(n_embd=576, n_ff=1536, n_layer=1, n_head=9, n_head_kv=3), lambda _: "q4_1"),
        ("qwen2", Shape(n_embd=896, n_ff=4864, n_layer=1, n_head=14, n_head_kv=2), lambda name: (
            "q8_0" if "attn_v" in name or name == "token_embd.weight" else "q6_K" if "ffn_down" in name else "q5_0"
        )),
    ],
    ids=["576", "896"],
)  # fmt: skip
def test_widths_that_are_no_multiple_of_256(
    architecture: str, shape: Shape, kind: Callable[[str], str], tmp_path: Path
) -> None:
    path = random_model(tmp_path / "m.gguf", architecture, kind, shape)
    p = _core.Probe(options(path))
    assert p.n_duo_products == p.n_cpu_products == 8 and p.same_bits
    assert_near_stock(path, p, NEAR_CODES)
    assert_same_bits(path, widths=(1, 2, 3, 4, 9), threads=(1, 2))


def test_columns_that_do_not_fill_a_unit_are_left_to_stock(model: ModelMaker) -> None:
    path = model("llama", "q8_0", Shape(n_embd=96, n_head=3, n_head_kv=3))
    p = _core.Probe(options(path))
    assert p.n_duo_products == 2 and p.n_cpu_products == N_PRODUCTS and not p.same_bits  # ffn_down has 512
    assert_near_stock(path, p, NEAR_CODES)


@pytest.mark.parametrize("path", demo_pair(), ids=["target", "draft"])
def test_the_demo_pair(path: Path) -> None:
    p = _core.Probe(options(path))
    assert p.n_duo_products == p.n_cpu_products and p.same_bits
    assert_near_stock(path, p, NEAR_CODES)
    assert_same_bits(path, widths=(1, 2, 5, 16, 33), threads=(1, 2))


def test_types_that_duo_lacks_are_left_to_stock(tmp_path: Path) -> None:
    others = {"blk.0.ffn_down.weight": "q1_0", "blk.0.attn_q.weight": "nvfp4", "blk.1.attn_v.weight": "q1_0"}
    path = random_model(tmp_path / "mixed.gguf", "llama", lambda name: others.get(name, "q4_K"))
    p = _core.Probe(options(path))
    assert p.n_duo_products == N_PRODUCTS - 3 and p.n_cpu_products == N_PRODUCTS and not p.same_bits
    assert_near_stock(path, p, NEAR_CODES)
    assert set(_core.cpu_types(str(path), 0)) == {"q4_K", *others.values()}


def test_only_the_chosen_types_are_taken(tmp_path: Path) -> None:
    path = random_model(tmp_path / "two.gguf", "llama", lambda name: "q8_0" if "ffn" in name else "q4_K")
    counts = [_core.Probe(options(path, types)).n_duo_products for types in ((), ("q8_0",), ("q4_K",), TYPES)]
    assert counts == [0, 6, 9, N_PRODUCTS]


@pytest.mark.parametrize(
    ("architecture", "placed"),
    [("llama", [("ffn_up", "CPU"), ("ffn", "CPU")]), ("mixtral", experts.overrides(True, 1, 1))],
    ids=["llama", "experts"],
)
def test_weights_that_the_user_places_on_the_cpu_have_duos_kernels_there(
    model: ModelMaker, architecture: str, placed: list[tuple[str, str]]
) -> None:
    path = model(architecture, "q8_0")
    o = options(path)
    o.override_tensors = placed
    p, free = _core.Probe(o), _core.Probe(options(path))
    assert p.n_duo_products == p.n_cpu_products == free.n_duo_products and p.same_bits
    assert (run(p, 24, 1, 2) == run(free, 24, 1, 2)).all()


@pytest.mark.parametrize(("pattern", "memory", "what"), [("(", "CPU", "pattern ( "), ("ffn_up", "nowhere", "nowhere")])
def test_a_placement_that_makes_no_sense_is_an_error(pattern: str, memory: str, what: str) -> None:
    o = options(demo_pair()[0])
    o.override_tensors = [(pattern, memory)]
    with pytest.raises(DuoError, match=r"^[^\n]*\(-ot\)[^\n]*$") as e:
        _core.Probe(o)
    assert what in str(e.value)


def test_two_models_at_once_in_two_threads(model: ModelMaker) -> None:
    """The draft and the target are evaluated at the same time."""
    widths = (24, *(1, 2, 5) * 4)
    probes = [_core.Probe(options(model(*m), n_threads=2)) for m in (("qwen2", "q4_K"), ("mixtral", "q8_0"))]
    alone = [run(p, *widths) for p in probes]
    wrong: list[int] = []

    def repeat(i: int) -> None:
        wrong.extend(i for _ in range(3) if not (run(probes[i], *widths) == alone[i]).all())

    threads = [threading.Thread(target=repeat, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    join(*threads)
    assert wrong == []


ALL_TYPES = """
if _core.kernels()[0] != os.environ["DUO_CPU_ISA"]:
    sys.exit(3)
found = []
for path in sys.argv[2:]:
    p = _core.Probe(options(path))
    assert p.same_bits
    whole = run(p, 16)
    for width in (1, 5):
        assert (run(p, 8, width) == whole[:8 + width]).all(), (path, width)
    found.append(whole)
np.save(sys.argv[1], np.stack(found))
"""


@pytest.mark.daily
@pytest.mark.slow
def test_each_instruction_set_gives_nearly_the_same(model: ModelMaker, tmp_path: Path) -> None:
    paths = [model("llama", kind) for kind in TYPES + MIXED]
    found: dict[str, Array] = {}
    arm = platform.machine() in ("aarch64", "arm64")
    for isa in (x for x in ISAS if x == "portable" or x.startswith("neon") == arm):
        child = run_python(CHILD + ALL_TYPES, tmp_path / f"{isa}.npy", *paths, env=os.environ | {"DUO_CPU_ISA": isa})
        assert child.returncode in (0, 3), child.stderr  # 3: this machine cannot run it
        if child.returncode == 0:
            found[isa] = np.load(tmp_path / f"{isa}.npy")
    assert len(found) >= 2 and "portable" in found
    for isa, logits in found.items():
        distance = np.sqrt(((logits - found["portable"]) ** 2).mean(2) / (logits**2).mean(2)).max(1)
        for kind, d in zip(TYPES + MIXED, distance, strict=True):
            assert d < NEAR.get(kind, NEAR_CODES), f"{kind} by {isa}: {d:.2g} away"
    for isa in found.keys() & {"amx", "amx_emulated"}:  # tiles give AVX-512's integers, scaled in the same order
        for i, kind in enumerate(TYPES + MIXED):
            assert kind == "bf16" or (found[isa][i] == found["avx512"][i]).all(), f"{kind} by {isa}"


TEXT = """
if _core.kernels()[0] != os.environ["DUO_CPU_ISA"]:
    sys.exit(3)
import duo
for mode in ("plain", "async"):
    r = duo.generate("Once upon a time " * 40, mode=mode, max_tokens=64, temperature=0, cpu_kernels="duo")
    print(repr(r.text))
"""


@pytest.mark.daily  # core.test_cpu_tiles and kernels.here compare the products
def test_a_text_by_tiles_is_the_text_without() -> None:
    texts = {}
    for isa in ("avx512", "amx", "amx_emulated"):
        child = run_python(CHILD + TEXT, env=os.environ | {"DUO_CPU_ISA": isa})
        assert child.returncode in (0, 3), child.stderr  # 3: this machine cannot run it
        if child.returncode == 0:
            texts[isa] = child.stdout
    if "avx512" not in texts:
        pytest.skip("no AVX-512 here")
    assert len(texts) >= 2 and set(texts.values()) == {texts["avx512"]} and len(texts["avx512"]) > 200
