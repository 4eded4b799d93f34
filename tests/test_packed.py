"""Files of packed weights (`duo pack`): the same bits, whatever becomes of the file."""

import ctypes
import mmap
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import needs_kernels
from gguf_files import Array
from model_files import options, random_model, run
from packed_files import packed_file
from packed_files import target as target
from sizes import mostly_daily
from test_pair_check import split
from waits import join

from duo import BadValueError, DoesNotFitError, Duo, UnknownModelError, _core
from duo.models.demo import demo_pair
from duo.options.engine import EngineOptions
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement import packed, packed_writer
from duo.placement.packing import NONE, Packing

pytestmark = needs_kernels

Run = Callable[..., tuple[int, str, str]]
DUO = ("--cpu-kernels", "duo")  # whatever a race would choose
DRAFTED: Packing = ("q4_0", ["q8_0"])


def probe(model: Path, file: Path | None = None, packing: Packing = NONE, **more: object) -> _core.Probe:
    o = options(model)
    if file is not None:
        o.packed = (os.fsencode(file), packed.source_of(str(model)), True)
    if packing[0]:
        o.packing = packing
        return _core.Probe(o, True)
    for name, value in more.items():
        setattr(o, name, value)
    return _core.Probe(o)


def logits(p: _core.Probe) -> Array:
    return run(p, 1, 3, 20)


# ---- the same bits


@pytest.mark.parametrize("kind", mostly_daily(["q4_0", "q5_K", "q6_K", "mxfp4", "tq2_0", "f16"], ["q5_K", "mxfp4"]))
def test_every_form_has_the_same_bits(kind: str, tmp_path: Path) -> None:
    model = random_model(tmp_path / "m.gguf", "llama", kind)
    p = probe(model, packed_file(model))
    assert p.n_from_file == p.n_duo_products and p.packed_file and not p.warning
    assert np.array_equal(logits(p), logits(probe(model)))


def is_in_memory(file: Path) -> bool:
    """Any page of its first MiB, as far as the system tells."""
    with file.open("rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as m:
        pages = (ctypes.c_ubyte * -(-min(len(m), 1 << 20) // mmap.PAGESIZE))()
        libc = ctypes.CDLL(None, use_errno=True)
        at = np.frombuffer(m, np.uint8)
        assert libc.mincore(ctypes.c_void_p(at.ctypes.data), ctypes.c_size_t(min(len(m), 1 << 20)), pages) == 0
        del at
        return any(page & 1 for page in pages)


@pytest.mark.skipif(sys.platform != "linux", reason="the page cache of Linux")
@pytest.mark.parametrize("architecture", mostly_daily(["mixtral", "llama"], ["llama"]))
def test_weights_that_are_not_in_memory_are_asked_for(architecture: str, tmp_path: Path) -> None:
    model = random_model(tmp_path / "m.gguf", architecture, "q4_K")
    expected = logits(probe(model))
    file = packed_file(model)

    def read_ahead() -> int:
        o = options(model)
        o.packed = (os.fsencode(file), packed.source_of(str(model)), False)
        p = _core.Probe(o)
        assert p.n_read_ahead == 0, "the pass that is tried when a model is loaded reads no weights"
        assert p.n_from_file and np.array_equal(logits(p), expected)
        return p.n_read_ahead

    assert read_ahead() == 0  # the file was just written
    with file.open("rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if is_in_memory(file):
        pytest.skip("this file system keeps its files in memory")
    assert read_ahead() > 0


@pytest.mark.parametrize("load_mode", mostly_daily(["none", "mmap", "mlock", "dio"], ["mmap"]))
@pytest.mark.parametrize("architecture", ["mixtral", "gemma"])  # experts; embeddings that are the output, too
def test_however_files_are_read(architecture: str, load_mode: str, tmp_path: Path) -> None:
    model = random_model(tmp_path / "m.gguf", architecture, "q4_K")
    expected = logits(probe(model))
    assert np.array_equal(logits(probe(model, load_mode=load_mode)), expected)
    p = probe(model, packed_file(model), load_mode=load_mode)
    assert p.n_from_file >= p.n_duo_products and np.array_equal(logits(p), expected)


def test_files_that_are_large_enough_to_be_read_ahead(tmp_path: Path) -> None:
    model = random_model(tmp_path / "m.gguf", "llama", "q4_K")
    expected = logits(probe(model))
    os.truncate(model, 65 << 20)  # with a hole at the end, which nobody needs
    assert np.array_equal(logits(probe(model)), expected)
    file = packed_file(model)
    os.truncate(file, 65 << 20)
    p = probe(model, file)
    assert p.n_from_file and np.array_equal(logits(p), expected)


def test_a_split_model(tmp_path: Path) -> None:
    whole = random_model(tmp_path / "whole.gguf", "llama", "q6_K")
    expected = logits(probe(whole))
    model = split(whole, tmp_path, 3)
    assert np.array_equal(logits(probe(model)), expected)
    p = probe(model, packed_file(model))
    assert p.n_from_file == p.n_duo_products and np.array_equal(logits(p), expected)


def test_a_part_that_is_cut_off(tmp_path: Path) -> None:
    model = split(random_model(tmp_path / "whole.gguf", "llama", "q6_K"), tmp_path, 3)
    second = tmp_path / "m-00002-of-00003.gguf"
    os.truncate(second, second.stat().st_size - 5000)
    with pytest.raises(BadValueError, match=r"00002.* is truncated"):
        probe(model)
    with pytest.raises(BadValueError, match=r"00002.* is truncated"):
        packed_file(model)


def test_two_loads_at_once(tmp_path: Path) -> None:
    models = [random_model(tmp_path / f"{kind}.gguf", "llama", kind) for kind in ("q4_K", "q8_0")]
    expected = [logits(probe(m)) for m in models]
    files = [packed_file(m) for m in models]
    found: dict[int, list[Array]] = {0: [], 1: []}

    def load(i: int) -> None:
        for file in (None, files[i]) * 2:
            found[i].append(logits(probe(models[i], file)))

    threads = [threading.Thread(target=load, args=(i,)) for i in found]
    for t in threads:
        t.start()
    for t in threads:
        join(t)
    for i, all_logits in found.items():
        assert len(all_logits) == 4 and all(np.array_equal(x, expected[i]) for x in all_logits)


def test_weights_that_a_draft_keeps_in_fewer_bits(tmp_path: Path) -> None:
    model = random_model(tmp_path / "m.gguf", "llama", "q8_0")
    p = probe(model, packed_file(model, DRAFTED), DRAFTED)
    assert p.packed_as == "q4_0" and p.n_from_file == p.n_duo_products
    assert np.array_equal(logits(p), logits(probe(model, packing=DRAFTED)))


def test_what_was_packed_for_a_draft_is_not_the_targets(tmp_path: Path) -> None:
    model = random_model(tmp_path / "m.gguf", "llama", "q8_0")
    p = probe(model, packed_file(model, DRAFTED))
    assert not p.packed_file and p.warning.startswith("nothing in ")
    assert np.array_equal(logits(p), logits(probe(model)))


def test_weights_for_other_kernels_are_read_from_the_model(tmp_path: Path) -> None:
    """Some tensors come from the packed file, and others do not."""
    model = random_model(tmp_path / "m.gguf", "llama", lambda name: "q8_0" if "attn" in name else "q4_K")
    o = options(model, ("q4_K",))
    expected = logits(_core.Probe(o))
    o.packed = (os.fsencode(packed_file(model)), packed.source_of(str(model)), True)
    p = _core.Probe(o)
    assert 0 < p.n_from_file == p.n_duo_products < p.n_cpu_products
    assert np.array_equal(logits(p), expected)


# ---- as users have it


def test_a_pair_writes_the_same_text(target: Path, tmp_path: Path, run: Run) -> None:
    draft = Path(shutil.copy(demo_pair()[1], tmp_path / "draft.gguf"))
    line = ("-m", target, "-md", draft, "--draft", "4", "-n", "40", "--temp", "0.8", "--seed", "3", "-p", "Once", *DUO)
    code, plain, err = run(*line)
    assert code == 0 and "packed in" not in err
    code, out, _ = run("pack", target)
    assert code == 0 and out.startswith(f"{target}.packed: ")
    assert run("pack", draft, "--draft")[0] == 0
    code, text, err = run(*line)
    assert (code, text) == (0, plain) and "packed in target.gguf.packed" in err and "packed in draft.gguf." in err
    code, text, err = run(*line, "--packed", "off", "--packed-draft", "off")
    assert (code, text) == (0, plain) and "packed in" not in err


def test_another_place(target: Path, tmp_path: Path, run: Run) -> None:
    there = tmp_path / "there" / "w"
    assert run("pack", target, "-o", there)[0] == 0 and there.is_file()
    code, _, err = run("-m", target, "--packed", there, "-n", "4", "-p", "Once", *DUO)
    assert code == 0 and "packed in w" in err
    code, _, err = run("-m", target, "--packed", tmp_path / "no", "-n", "4", "-p", "Once")
    assert code == 1 and "there is no file" in err and "--packed" in err


def test_a_folder_that_cannot_be_written(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    there = packed.writable_path(str(target))
    assert there.parent != target.parent
    packed_writer.pack(str(target), there, NONE, 1)
    with Duo(target, cpu_kernels="duo") as d:
        assert d.engine.target is not None and d.engine.target.packed_file == str(there)


def test_the_next_commit_of_a_repository_has_the_packed_file(target: Path, tmp_path: Path) -> None:
    """The hub's cache has a link for each commit."""
    data = tmp_path / "blobs" / "0123"
    first, second = (tmp_path / "snapshots" / commit / "m.gguf" for commit in "ab")
    for link in (data, first, second):
        link.parent.mkdir(parents=True)
    target.rename(data)
    for link in (first, second):
        link.symlink_to("../../blobs/0123")
    found = ModelOptions.of(engine_options({}), "target", str(second))
    old = packed.cached_path(str(second))  # from before packed files lay beside the data
    old.parent.mkdir(parents=True)
    old.write_bytes(b"")
    assert packed.find(found) == str(old)
    there = packed.writable_path(str(first))
    assert there == data.with_name("0123.packed")
    packed_writer.pack(str(first), there, NONE, 1)
    assert packed.find(found) == str(there)
    with Duo(second, cpu_kernels="duo") as d:
        assert d.engine.target is not None and d.engine.target.packed_file == str(there)
    aside = tmp_path / "link.gguf"  # the user's own
    aside.symlink_to(tmp_path / "elsewhere" / "m.gguf")
    assert packed.writable_path(str(aside)) == tmp_path / "link.gguf.packed"


def test_what_exists_is_not_overwritten(target: Path, tmp_path: Path, run: Run) -> None:
    other = tmp_path / "notes"
    other.write_text("mine")
    for out in (target, other, tmp_path):
        code, _, err = run("pack", target, "-o", out)
        assert code == 1 and "choose another name" in err
    assert other.read_text() == "mine" and target.stat().st_size == demo_pair()[0].stat().st_size
    for _ in range(2):  # a packed file is replaced
        assert run("pack", target)[0] == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes", "target.gguf", "target.gguf.packed"]


def test_no_model_and_no_weights(tmp_path: Path, run: Run) -> None:
    assert run("pack", tmp_path / "no.gguf")[2].startswith("duo: there is no file")
    (tmp_path / "text.gguf").write_text("no model")
    assert "is not a GGUF file" in run("pack", tmp_path / "text.gguf")[2]
    model = random_model(tmp_path / "m.gguf", "llama", lambda _: "f16")
    with pytest.raises(UnknownModelError, match="is a directory"):
        _core.pack_model(os.fsencode(tmp_path), os.fsencode(tmp_path / "x"), ("", ""), NONE, 1)
    with pytest.raises(BadValueError, match="check both paths"):
        packed_writer.pack(str(model), model / "below" / "x", NONE, 1)


def test_weights_larger_than_memory_are_mapped(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "memory_available", lambda: 6_500_000)
    with pytest.raises(DoesNotFitError, match="duo pack"):
        Duo(target, n_ctx=64)
    packed_file(target)
    Duo(target, n_ctx=64, cpu_kernels="duo").close()
    with pytest.raises(DoesNotFitError, match="the cache needs"):
        Duo(target, n_ctx=4096, cpu_kernels="duo")  # the cache is not


def test_the_file_is_read_to_its_end_once(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is checked whenever somebody has written to it, and not at each start."""
    file = packed_file(target)

    def must_be_checked() -> bool:
        o = packed.ModelOptions.of(complete(), "target", str(target))
        return packed.choose(o, NONE)[2]

    assert not must_be_checked()  # duo pack has just written it
    file.write_bytes(file.read_bytes())
    assert must_be_checked()
    Duo(target, cpu_kernels="duo").close()
    assert not must_be_checked()


def complete() -> EngineOptions:
    from duo.options.validate import engine_options

    return engine_options({})
