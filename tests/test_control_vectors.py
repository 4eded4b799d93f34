"""Control vectors: directions that are added to the target's layers, from files as llama.cpp's cvector-generator
writes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from conftest import EXACT
from hosts import KERNELS, host

from duo import BadValueError, Duo, UnknownModelError
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.gguf_tools.whole_file import CheckedGgufReader
from duo.models.demo import demo_pair
from duo.models.header import read_header

TARGET, DRAFT = demo_pair()
HEADER = read_header(TARGET)
GREEDY = {"max_tokens": 16, "temperature": 0, "ignore_eos": True}
PROMPT = "Once upon a time"
Run = Callable[..., tuple[int, str, str]]


def directions(path: Path, seed: int = 1, *, architecture: str = "controlvector", **changed: Any) -> Path:
    """A file of a direction for each layer but the first; `changed` are tensors by name, None: left out."""
    random = np.random.default_rng(seed)
    found = {
        f"direction.{i}": random.normal(0, 0.4, HEADER.n_embd).astype(np.float32) for i in range(1, HEADER.n_layer)
    }
    w = gguf.GGUFWriter(str(path), architecture)
    w.add_string("controlvector.model_hint", HEADER.architecture)
    w.add_uint32("controlvector.layer_count", HEADER.n_layer - 1)
    for name, data in {**found, **{name.replace("_", "."): x for name, x in changed.items()}}.items():
        if data is not None:
            w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def text(draft: Path | None = None, mode: Any = "plain", **options: Any) -> tuple[int, ...]:
    with SwitchedDuo(TARGET, draft, n_ctx=256, always=draft is not None, **{**EXACT, **options}) as d:
        assert d.target.same_bits
        return d.generate(PROMPT, mode=mode, n_draft=3, **GREEDY).tokens


def test_a_control_vector_changes_the_text_in_every_mode_alike(tmp_path: Path) -> None:
    file = directions(tmp_path / "a.gguf")
    plain = text()
    steered = text(control_vector=file)
    assert steered != plain
    assert text(DRAFT, "sync", control_vector=file) == text(DRAFT, "async", control_vector=str(file)) == steered
    assert text(control_vector_scaled={file: 0.0}) == plain
    assert text(control_vector_scaled=f"{file}:1.0") == steered
    assert text(control_vector_scaled={str(file): -1.5}) not in (plain, steered)
    assert text(control_vector=file, control_vector_scaled={file: -1.0}) == plain  # they are added up
    other = directions(tmp_path / "b.gguf", 2)
    assert text(control_vector=[file, other]) == text(control_vector=f"{other},{file}") != steered


def test_only_the_layers_of_the_range_are_steered(tmp_path: Path) -> None:
    file = directions(tmp_path / "a.gguf")
    last = HEADER.n_layer - 1
    assert last >= 2
    some = {f"direction_{i}": None for i in range(2, HEADER.n_layer)}
    first_alone = directions(tmp_path / "b.gguf", **some)
    both = [text(control_vector=file, control_vector_layer_range=r) for r in ((1, last), (0, 0))]
    assert both[0] == both[1] == text(control_vector=file)
    assert text(control_vector=file, control_vector_layer_range=(1, 1)) == text(control_vector=first_alone)
    assert text(control_vector=first_alone, control_vector_layer_range=(2, last)) == text()


def test_libllama_adds_the_same(tmp_path: Path) -> None:
    """llama_cpp has no option for it, but libllama's function is the one that llama.cpp's programs call."""
    import ctypes

    import llama_cpp
    from conftest import need_llama_cpp

    need_llama_cpp()
    file = directions(tmp_path / "a.gguf")
    reader = {t.name: t.data for t in CheckedGgufReader(file).tensors}
    data = np.concatenate([reader[f"direction.{i}"] for i in range(1, HEADER.n_layer)]).astype(np.float32)
    llama = llama_cpp.Llama(str(TARGET), n_ctx=256, verbose=False)
    pointer = data.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    context = llama._ctx.ctx
    assert llama_cpp.llama_set_adapter_cvec(context, pointer, data.size, HEADER.n_embd, 1, HEADER.n_layer) == 0
    theirs = llama(PROMPT, max_tokens=24, temperature=0)["choices"][0]["text"]
    llama.close()
    with Duo(TARGET, n_ctx=256, cpu_kernels="stock", flash_attn="off", control_vector=file) as d:
        assert d(PROMPT, max_tokens=24, temperature=0)["choices"][0]["text"] == theirs


def test_bad_files_are_refused_with_a_sentence(tmp_path: Path) -> None:
    n = HEADER.n_embd
    nan = np.full(n, np.nan, np.float32)
    cases: list[tuple[Path, str]] = [
        (directions(tmp_path / "1", direction_1=np.ones(n + 1, np.float32)), f"has directions of {n + 1} numbers"),
        (directions(tmp_path / "2", direction_1=np.ones(n, np.float16)), "does not contain 32-bit floats"),
        (
            directions(tmp_path / "3", direction_1=np.ones((2, n // 2), np.float32)[:, : n // 2 - 1]),
            "has directions of",
        ),
        (directions(tmp_path / "4", direction_0=np.ones(n, np.float32)), "contains a tensor direction.0"),
        (directions(tmp_path / "5", direction_x=np.ones(n, np.float32)), "contains a tensor direction.x"),
        (
            directions(tmp_path / "6", direction_2000000000=np.ones(n, np.float32)),
            "has a direction for layer 2000000000",
        ),
        (directions(tmp_path / "7", direction_1=nan), "contains a number that is not finite"),
        (directions(tmp_path / "8", architecture="llama"), r"is a file of another kind \(llama\)"),
        (DRAFT, "is a file of another kind"),
        (
            directions(tmp_path / "9", **{f"direction_{i}": None for i in range(1, HEADER.n_layer)}),
            "contains no directions",
        ),
    ]
    good = directions(tmp_path / "good").read_bytes()
    (tmp_path / "10").write_bytes(good[: len(good) - 40])
    (tmp_path / "11").write_bytes(good[:60])
    (tmp_path / "12").write_bytes(b"no GGUF file")
    cases += [(tmp_path / "10", "is truncated|damaged"), (tmp_path / "11", "damaged"), (tmp_path / "12", "damaged")]
    for file, why in cases:
        with pytest.raises(BadValueError, match=why) as e:
            Duo(TARGET, n_ctx=64, control_vector=file)
        assert str(file) in str(e.value)
    with pytest.raises(UnknownModelError, match=r"there is no control vector '.*none' \(--control-vector\)"):
        Duo(TARGET, n_ctx=64, control_vector=tmp_path / "none")
    for given, why in (((3, 2), "the last layer comes before the first"), ((1,), "two layers"), ("x", "two layers")):
        with pytest.raises(BadValueError, match=why):
            Duo(TARGET, n_ctx=64, control_vector_layer_range=given)  # type: ignore[arg-type]
    with pytest.raises(BadValueError, match="begin at layer 900"):
        Duo(TARGET, n_ctx=64, control_vector=tmp_path / "good", control_vector_layer_range=(900, 901))


def test_the_command_line_has_llama_cpps_spellings(run: Run, tmp_path: Path) -> None:
    file = directions(tmp_path / "a.gguf")
    args = ["-m", TARGET, "-c", "256", "-p", PROMPT, "-n", "24", "--temp", "0", *KERNELS]
    outs = [
        run(*args, *more)[:2]
        for more in (
            [],
            ["--control-vector", file],
            ["--control-vector-scaled", f"{file}:1.0", "--control-vector-layer-range", "1", "99"],
            ["--control-vector-layer-range", "-1", "-1", "--control-vector-scaled", f"{file}:0"],
        )
    ]
    assert [code for code, _ in outs] == [0] * 4
    assert outs[1] == outs[2] != outs[0] == outs[3]


def test_a_verify_host_has_them_too(tmp_path: Path) -> None:
    file = directions(tmp_path / "a.gguf")
    with (
        host("verify", "-m", TARGET, "-c", "256", "--control-vector", file, *KERNELS) as h,
        Duo(None, DRAFT, verify_host=h.address) as d,
    ):
        assert d.generate(PROMPT, **GREEDY).tokens == text(control_vector=file)
        with pytest.raises(BadValueError, match="belongs to the model on the other machine"):
            Duo(None, DRAFT, verify_host=h.address, control_vector=file)
