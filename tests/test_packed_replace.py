"""`duo pack --replace` and --unpack remove and replace nothing that may be all that is left of a model."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import needs_kernels
from packed_files import target as target
from packed_files import whole_file
from test_drop_in_load import lora_of

from duo import BadValueError, DoesNotFitError, Duo, _core
from duo.cli.commands.serve import name_of
from duo.models.demo import demo_pair
from duo.options.engine import EngineOptions
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement import packed, packed_writer
from duo.placement.packing import NONE

pytestmark = needs_kernels

Run = Callable[..., tuple[int, str, str]]


def options(model: Path | str, **changed: Any) -> ModelOptions:
    o: EngineOptions = engine_options({"cpu_kernels": "duo", **changed})
    return ModelOptions.of(o, "target", str(model))


def replace(model: Path, progress: packed_writer.Progress | None = None) -> tuple[Path, str]:
    out = packed.whole_path(str(model))
    return out, packed_writer.replace(str(model), out, 2, progress)[1]


def test_a_model_that_is_not_there_is_not_announced(tmp_path: Path, run: Run) -> None:
    model = tmp_path / "no.gguf"
    assert run("pack", model, "--replace") == (1, "", f"duo: there is no file {model}; check the path\n")


# ---- the file's name


@pytest.mark.parametrize("name", ["target.packed.gguf", "./target.packed.gguf", "below/..//target.packed.gguf"])
def test_however_its_path_is_written(name: str, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = whole_file(target)
    target.unlink()
    (target.parent / "below").mkdir()
    monkeypatch.chdir(target.parent)
    for choice in ("auto", str(file)):
        assert 0 < packed.mapped_bytes(options(name, packed=choice)) < file.stat().st_size
        with Duo(name, cpu_kernels="duo", packed=choice) as d:
            assert d.engine.target is not None and d.engine.target.packed_file and not d.engine.target.warning


def test_the_name_that_servers_tell() -> None:
    for file in ("70B.gguf", "70B.packed.gguf"):
        assert name_of({"pair": None, "hf_repo": None, "model": f"models/{file}"}) == "70B"


def test_it_takes_no_other_packed_file(target: Path, run: Run) -> None:
    file = whole_file(target)
    other = Path(shutil.copy(file, target.parent / "other.packed.gguf"))
    code, _, err = run("-m", file, "--packed", other, "-p", "x", "-n", "1", "--cpu-kernels", "duo")
    assert code == 1 and "packed itself" in err and "--packed" in err and len(err.splitlines()) == 1
    assert _core.ModelOptions().packed[2]  # whoever says nothing of it has the file checked


def test_what_is_not_mapped_needs_memory(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = whole_file(target)
    monkeypatch.setattr(_core, "memory_available", lambda: 5 << 19)
    Duo(target, n_ctx=64, cpu_kernels="stock", load_mode="mmap").close()
    with pytest.raises(DoesNotFitError, match="the models need"):
        Duo(file, n_ctx=64, cpu_kernels="stock", load_mode="mmap")


def test_adapters_and_vectors(target: Path, tmp_path: Path) -> None:
    file = whole_file(target)
    adapter = str(lora_of(tmp_path / "adapter.gguf", 1))
    texts, vectors = set(), []
    for model in (target, file):
        with Duo(model, lora=[adapter]) as d:
            texts.add(d.generate("Once", max_tokens=12, temperature=0).text)
        file.write_bytes(file.read_bytes())  # so that it is checked
        with Duo(model, embedding=True, cpu_kernels="duo") as d:
            vectors.append(d.embed("Once"))
        assert packed.choose(options(file), NONE)[2] == (model == target)
    assert len(texts) == 1 and vectors[0] == vectors[1]


# ---- what stays


def test_another_models_packed_file_stays(target: Path, run: Run) -> None:
    file = whole_file(target)
    content = file.read_bytes()
    shutil.copy(demo_pair()[1], target)  # a new model under the old name
    other = Path(shutil.copy(target, target.parent / "other.gguf"))
    damaged = target.parent / "damaged.packed.gguf"
    damaged.write_bytes(content[:60_000])
    for line, why in (
        ((target, "--replace"), "target.packed.gguf exists"),
        ((other, "--replace", "-o", file), "target.packed.gguf exists"),
        ((other, "-o", file), "all that is left of a model"),
        ((other, "-o", damaged), "all that is left of a model"),
        ((file, "--unpack"), "target.gguf exists"),
    ):
        code, _, err = run("pack", *line)
        assert code == 1 and why in err.splitlines()[-1], err
    assert file.read_bytes() == content and target.read_bytes() == other.read_bytes()


def test_packed_weights_that_are_of_no_use_are_written_anew(target: Path) -> None:
    beside = packed.default_path(str(target))
    packed_writer.pack(str(target), beside, NONE, 2)
    good = beside.read_bytes()
    for content in (b"", good[:5000], good[:-1] + b"!", good.replace(b"duo.packed.version", b"duo.packed.another")):
        beside.write_bytes(content)
        packed_writer.pack(str(target), beside, NONE, 2)
        assert beside.read_bytes() == good


def test_files_beside_it_that_are_not_its_own_stay(target: Path) -> None:
    beside = packed.default_path(str(target))
    file = whole_file(Path(shutil.copy(demo_pair()[1], target.parent / "other.gguf")))
    for content in (b"notes", file.read_bytes()):
        beside.write_bytes(content)
        out, kept = replace(target)
        assert not kept and not target.exists() and beside.read_bytes() == content
        packed_writer.unpack(str(out), target, 2)
        out.unlink()
    beside.unlink()
    other = file.with_name("other.gguf")
    packed_writer.pack(str(other), beside, NONE, 2)
    assert replace(target)[1] == "" and beside.is_file()


@pytest.mark.parametrize("what", ["another file", "new content", "a link"])
def test_a_model_that_changes_meanwhile_stays(what: str, target: Path) -> None:
    new = Path(shutil.copy(demo_pair()[1], target.parent / "new.gguf"))
    content = target.read_bytes()

    def change(_path: str, share: float) -> None:
        if share < 1:  # it was compared
            return
        if what == "another file":
            new.replace(target)
        elif what == "a link":
            target.unlink()
            target.symlink_to(new)
        else:
            target.write_bytes(content[:-1] + b"!")

    out, kept = replace(target, change)
    expected = content[:-1] + b"!" if what == "new content" else demo_pair()[1].read_bytes()
    assert "was kept" in kept and target.read_bytes() == expected and target.is_symlink() == (what == "a link")
    packed_writer.unpack(str(out), target.parent / "old.gguf", 2)
    assert (target.parent / "old.gguf").read_bytes() == content


def test_a_process_that_is_killed(target: Path) -> None:
    """When the packed file was compared. Then it works again."""
    content = target.read_bytes()
    code = f"""
import os, signal
from pathlib import Path
from duo.placement import packed_writer
def die(_, share):
    if share == 1:
        os.kill(os.getpid(), signal.SIGKILL)
packed_writer.replace({str(target)!r}, Path({str(packed.whole_path(str(target)))!r}), 1, die)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == -signal.SIGKILL
    assert target.read_bytes() == content and len(list(target.parent.glob("*.part"))) == 1
    out, kept = replace(target)
    packed_writer.unpack(str(out), target, 2)
    assert not kept and target.read_bytes() == content


def test_a_file_that_is_made_meanwhile_stays(target: Path) -> None:
    out = packed.whole_path(str(target))
    names = sorted((target.name, out.name))

    def make(_path: str, share: float) -> None:
        if share == 1:
            out.write_bytes(b"mine")

    with pytest.raises(BadValueError, match="exists"):
        replace(target, make)
    assert out.read_bytes() == b"mine" and sorted(p.name for p in target.parent.iterdir()) == names


def test_a_folder_that_cannot_be_synced(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_fd: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(BadValueError, match=r"target\.gguf was kept"):
        replace(target)
    assert target.is_file()


def test_a_file_of_a_cache_stays(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_CACHE", str(target.parent.parent))
    with pytest.raises(BadValueError, match="is in the cache"):
        replace(target)
    assert [p.name for p in target.parent.iterdir()] == ["target.gguf"]


def test_permissions_stay(target: Path) -> None:
    target.chmod(0o640)
    out, _ = replace(target)
    packed_writer.unpack(str(out), target, 2)
    assert [stat.S_IMODE(p.stat().st_mode) for p in (out, target)] == [0o640, 0o640]


def test_another_name_of_the_file_is_told(target: Path, run: Run) -> None:
    os.link(target, target.parent / "second.gguf")
    code, _, err = run("pack", target, "--replace")
    assert code == 0 and "hard links" in err and (target.parent / "second.gguf").is_file()
