"""Packed files that take the place of a model's file (`duo pack --replace`): the same text, or a sentence."""

import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs_kernels
from gguf_files import Array
from model_files import options, random_model, run
from packed_files import target as target
from packed_files import whole_file as whole
from sizes import mostly_daily, size
from test_pair_check import split

from duo import BadValueError, Duo, UnknownModelError, __version__, _core
from duo.models.demo import demo_pair
from duo.models.header import read_header, read_rows
from duo.models.packed_form import is_packed
from duo.placement import packed, packed_writer
from duo.placement.packing import NONE

pytestmark = needs_kernels

Run = Callable[..., tuple[int, str, str]]
KINDS = ("q4_0", "q5_K", "q6_K", "mxfp4", "tq2_0", "iq3_s", "f16")


def logits(
    model: Path, types: tuple[str, ...] | None = None, own: bool = True, **more: object
) -> tuple[_core.Probe, Array]:
    o = options(model) if types is None else options(model, types)
    if own and is_packed(model):
        o.packed = (os.fsencode(model), "", True)
    for name, value in more.items():
        setattr(o, name, value)
    p = _core.Probe(o)
    return p, run(p, 1, 3, 20)


def text_of(model: Path, **options: Any) -> str:
    with Duo(model, **{"cpu_kernels": "duo", **options}) as d:
        return d.generate("Once upon a time", max_tokens=12, temperature=0).text


# ---- the same bits


@pytest.mark.parametrize("kind", mostly_daily(KINDS, ["q6_K", "mxfp4"]))
@pytest.mark.parametrize("architecture", ["mixtral", "gemma"])  # experts; embeddings that are the output, too
def test_the_same_bits_without_the_models_file(architecture: str, kind: str, tmp_path: Path) -> None:
    model = random_model(tmp_path / "m.gguf", architecture, kind)
    _, expected = logits(model)
    content, file = model.read_bytes(), whole(model)
    model.unlink()
    p, found = logits(file)
    assert p.n_from_file >= p.n_duo_products > 0 and p.packed_file == str(file) and not p.warning
    assert np.array_equal(found, expected)
    packed_writer.unpack(str(file), model, 2)
    assert model.read_bytes() == content


@pytest.mark.parametrize("load_mode", mostly_daily(["none", "mmap", "mlock", "dio"], ["mmap"]))
def test_however_it_is_read(load_mode: str, tmp_path: Path) -> None:
    model = random_model(tmp_path / "m.gguf", "llama", "q4_K")
    _, expected = logits(model)
    p, found = logits(whole(model), load_mode=load_mode)
    assert p.n_from_file and np.array_equal(found, expected)


def test_what_other_kernels_compute_is_unpacked(tmp_path: Path) -> None:
    model = random_model(tmp_path / "m.gguf", "llama", lambda name: "q8_0" if "attn" in name else "q4_K")
    file = whole(model)
    for types in ((), ("q4_K",)):
        for own in (True, False):
            p, found = logits(file, types, own)
            assert (p.n_from_file > 0) == (own and types != ()) and np.array_equal(found, logits(model, types)[1])


def test_weights_of_a_draft_that_become_fewer_bits(tmp_path: Path) -> None:
    model = random_model(tmp_path / "m.gguf", "llama", "q8_0")
    found = []
    for path in (model, whole(model)):
        o = options(path)
        o.packing = ("q4_0", ["q8_0"])
        o.packed = (os.fsencode(path), "", True) if is_packed(path) else o.packed
        found.append(run(_core.Probe(o, True), 1, 3))
    assert np.array_equal(found[0], found[1])


def test_weights_are_checked_where_they_are_unpacked(tmp_path: Path) -> None:
    model = random_model(tmp_path / "m.gguf", "llama", "q8_0")
    file = whole(model)
    assert np.array_equal(logits(file, check_tensors=True)[1], logits(model)[1])


def test_the_header_is_the_models(tmp_path: Path) -> None:
    model = random_model(tmp_path / "m.gguf", "llama", "q6_K")
    theirs, ours = read_header(model), read_header(whole(model))
    assert ours.tensors == theirs.tensors and ours.values == theirs.values and ours.n_file_bytes == theirs.n_file_bytes
    for a, b in zip(theirs.tensors, ours.tensors, strict=True):
        assert read_rows(theirs, a, 7) == read_rows(ours, b, 7)


# ---- as users have it


def test_a_pair(target: Path, tmp_path: Path, run: Run) -> None:
    draft = Path(shutil.copy(demo_pair()[1], tmp_path / "draft.gguf"))
    more = ("--draft", "4", "-n", "40", "--temp", "0.8", "--seed", "3", "-p", "Once", "--cpu-kernels", "duo")
    code, plain, _ = run("-m", target, "-md", draft, *more)
    assert code == 0
    assert run("pack", target)[0] == 0  # of no use without the model's file
    content = target.read_bytes()
    beside = {target: f", and {packed.default_path(str(target))}, if duo packed it from this model,", draft: ""}
    for model in (target, draft):
        code, out, err = run("pack", model, "--replace")
        assert (
            code == 0
            and f"{model}{beside[model]} will be removed" in err
            and out.startswith(f"{packed.whole_path(str(model))}: ")
        )
    names = ["draft.packed.gguf", "target.packed.gguf"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    pair = ("-m", tmp_path / names[1], "-md", tmp_path / names[0])
    for kernels in ((), ("--packed", "off", "--packed-draft", "off")):
        code, text, err = run(*pair, *more, *kernels)
        assert (code, text) == (0, plain) and ("packed in target.packed.gguf" in err) == (not kernels)
    assert run("check", *pair[1::2])[0] == 0
    code, out, _ = run("pack", pair[1], "--unpack")
    assert code == 0 and "unpacked in" in out and target.read_bytes() == content
    assert pair[1].is_file()


def test_it_is_read_to_its_end_once(target: Path) -> None:
    file = whole(target)
    target.unlink()

    def checked() -> bool:
        from duo.options.engine import EngineOptions
        from duo.options.model import ModelOptions
        from duo.options.validate import engine_options

        o: EngineOptions = engine_options({})
        return not packed.choose(ModelOptions.of(o, "target", str(file)), NONE)[2]

    assert checked()
    for kernels in ("duo", "stock"):
        file.write_bytes(file.read_bytes())
        assert not checked()
        text_of(file, cpu_kernels=kernels)
        assert checked()


def test_what_needs_the_models_own_file_says_so(target: Path, tmp_path: Path, run: Run) -> None:
    file = whole(target)
    for line in (
        ("make-draft", "-m", file, "-o", tmp_path / "d.gguf"),
        ("dev", "widen", file, "-o", tmp_path / "w.gguf", "--size", "1G"),
    ):
        code, _, err = run(*line)
        assert code == 1 and "packed file" in err and "duo pack --unpack" in err and len(err.splitlines()) == 1, err
    code, _, err = run("pack", file)
    assert code == 1 and "is packed already" in err


def test_what_cannot_be_replaced_stays(target: Path, tmp_path: Path, run: Run) -> None:
    link = tmp_path / "link.gguf"
    link.symlink_to(target)
    parts = tmp_path / "parts"
    parts.mkdir()
    first = split(target, parts, 3)
    other = tmp_path / "other.gguf"
    other.write_bytes(b"mine")
    for line, why in (
        ((link, "--replace"), "is a link"),
        ((first, "--replace"), "is split into 3 files"),
        ((target, "--replace", "-o", target), "is the model itself"),
        ((target, "--replace", "-o", other), "choose another name"),
        ((target, "--replace", "--draft"), "exclude each other"),
        (("user/repo", "--replace"), "of the hub"),
        ((target, "--unpack", "-o", tmp_path / "new"), "is no packed file"),
        ((target, "--unpack", "-o", other), "choose another name"),
    ):
        code, _, err = run("pack", *line)
        assert code == 1 and why in err, err
    assert target.stat().st_size == demo_pair()[0].stat().st_size and other.read_bytes() == b"mine"
    assert len(list(parts.iterdir())) == 3 and not list(tmp_path.glob("*.part"))


def test_a_packed_file_that_needs_its_model(target: Path) -> None:
    side = packed.default_path(str(target))
    packed_writer.pack(str(target), side, NONE, 1)
    with pytest.raises(UnknownModelError, match="only the packed weights"):
        Duo(side)


def test_a_packed_file_in_the_models_folder_of_another_model(target: Path, tmp_path: Path) -> None:
    """It is a packed file for the model that it was made of, and for no other one."""
    file = whole(target)
    assert text_of(target, packed=str(file)) == text_of(target, packed="off")
    other = Path(shutil.copy(demo_pair()[1], tmp_path / "other.gguf"))
    os.utime(other, ns=(0, 0))
    with Duo(other, packed=str(file), cpu_kernels="duo") as d:
        assert d.engine.target is not None
        assert "another file" in d.engine.target.warning and not d.engine.target.packed_file


# ---- faults


def test_the_model_stays_if_it_is_stopped(target: Path) -> None:
    def stop(_path: str, share: float) -> None:
        if share == 1:
            raise KeyboardInterrupt  # when the packed file was compared

    with pytest.raises(KeyboardInterrupt):
        packed_writer.replace(str(target), packed.whole_path(str(target)), 1, stop)
    assert [p.name for p in target.parent.iterdir()] == ["target.gguf"]


def test_another_version(target: Path) -> None:
    file = whole(target)
    key = b"duo.packed.version" + struct.pack("<I", 4)  # of a number of 32 bits
    content = file.read_bytes()
    assert content.count(key) == 1
    file.write_bytes(content.replace(key + struct.pack("<I", _core.WHOLE_VERSION), key + struct.pack("<I", 99)))
    with pytest.raises(BadValueError, match=rf"another version of duo, {re.escape(__version__)}; install that one"):
        Duo(file)


def damage(file: Path, n: int) -> None:
    """A sentence, and no text."""
    good = file.read_bytes()
    rng = np.random.default_rng(n)
    for i in range(n):
        bad = bytearray(good)
        if i % 10 == 0:
            del bad[int(rng.integers(64, len(good))) :]
        else:
            # Every third time in the header.
            at = int(rng.integers(64, 4096 * 4 if i % 3 == 1 else len(good)))
            bad[at] ^= 1 << int(rng.integers(8))
        file.write_bytes(bad)
        kernels = ("duo", "stock")[i % 2]
        with pytest.raises(BadValueError, match="packed weights in"):
            text_of(file, cpu_kernels=kernels)
            pytest.fail(f"a text from a damaged file ({i})")
    file.write_bytes(good)
    text_of(file)


def test_damaged_files(target: Path) -> None:
    damage(whole(target), size(12, 40))


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_a_thousand_damaged_files(target: Path) -> None:
    damage(whole(target), 1000)
