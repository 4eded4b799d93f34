"""Packed weights that do not fit, are damaged, or cannot be written: a sentence, and the text as without them."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import needs_kernels
from gguf import GGUFValueType
from gguf_files import rewrite
from packed_files import packed_file
from packed_files import target as target
from sizes import size

from duo import Duo, _core
from duo.models.demo import demo_pair
from duo.placement import packed, packed_writer
from duo.placement.packing import NONE, Packing

pytestmark = needs_kernels

Run = Callable[..., tuple[int, str, str]]


def text_of(model: Path) -> tuple[str, str]:
    """With the warning."""
    with Duo(model, cpu_kernels="duo") as d:
        assert d.engine.target is not None
        return d.generate("Once upon a time", max_tokens=12, temperature=0).text, d.engine.target.warning


def test_a_model_that_has_changed(target: Path) -> None:
    file = packed_file(target)
    expected, _ = text_of(target)
    later = file.stat().st_mtime_ns + 10**9
    os.utime(target, ns=(later, later))
    text, warning = text_of(target)
    assert text == expected and "changed since" in warning and "duo pack" in warning
    shutil.copy(demo_pair()[1], target)  # another model under the same name
    os.utime(target, ns=(0, 0))
    _, warning = text_of(target)
    assert "another file" in warning


def test_another_version(target: Path, tmp_path: Path) -> None:
    expected, _ = text_of(target)
    file = packed_file(target)
    newer = (GGUFValueType.UINT32, _core.PACKED_VERSION + 1)
    shutil.move(rewrite(file, tmp_path / "x", put={"duo.packed.version": newer}), file)
    text, warning = text_of(target)
    assert text == expected and "another version of duo" in warning


def test_a_file_that_is_something_else(target: Path) -> None:
    expected, _ = text_of(target)
    file = packed.default_path(str(target))
    for content in (b"", b"GGUF", target.read_bytes()):
        file.write_bytes(content)
        text, warning = text_of(target)
        assert text == expected and warning


def damage(file: Path, n: int) -> None:
    """Children load the model with the file damaged in n ways, one after the other, and write the same text."""
    good = file.read_bytes()
    rng = np.random.default_rng(n)
    model = Path(str(file).removesuffix(packed.SUFFIX))
    expected, _ = text_of(model)
    for i in range(n):
        bad = bytearray(good)
        if i % 10 == 0:
            del bad[int(rng.integers(len(good))) :]
        else:
            # Every other time in the header.
            at = int(rng.integers(4096 * 4 if i % 2 else len(good)))
            bad[at] ^= 1 << int(rng.integers(8))
        file.write_bytes(bad)
        text, warning = text_of(model)
        assert text == expected and "run duo pack again" in warning, i


def test_damaged_files(target: Path) -> None:
    damage(packed_file(target), size(8, 40))


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_a_thousand_damaged_files(target: Path) -> None:
    damage(packed_file(target), 1000)


def test_stopped_while_packing(target: Path) -> None:
    def stop(_path: str, _share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packed_writer.pack(str(target), packed.default_path(str(target)), NONE, 1, stop)
    assert [p.name for p in target.parent.iterdir()] == ["target.gguf"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_kill_and_a_closed_terminal_leave_nothing(
    target: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    number = getattr(signal, name)

    whole = packed_writer.pack

    def pack(model: str, out: Path, packing: Packing, n_threads: int, _: object) -> int:
        return whole(model, out, packing, n_threads, lambda *_: signal.raise_signal(number))

    monkeypatch.setattr(packed_writer, "pack", pack)
    before = signal.signal(number, signal.SIG_IGN)
    try:
        assert run("pack", target)[0] == 0  # as nohup has it
        target.with_name("target.gguf.packed").unlink()
        signal.signal(number, signal.SIG_DFL)
        assert run("pack", target)[0] == 130
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert [p.name for p in target.parent.iterdir()] == ["target.gguf"]


@pytest.mark.parametrize("at", [0.0, 0.9])  # before weights are read; when duo has packed them
@pytest.mark.parametrize("pack_before", [False, True])
def test_stopped_while_loading(at: float, pack_before: bool, target: Path) -> None:
    def stop(_path: str, share: float) -> None:
        if share >= at:
            raise KeyboardInterrupt

    if pack_before:
        file = packed_file(target)
        file.write_bytes(file.read_bytes())  # so that it is checked
    with pytest.raises(KeyboardInterrupt):
        Duo(target, progress=stop, cpu_kernels="duo")
    Duo(target).close()


@pytest.mark.parametrize("more", [[], ["--replace"]])
def test_a_full_disk(more: list[str], target: Path) -> None:
    """Here a limit of the size of files."""
    code = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, {resource.RLIM_INFINITY}))
from duo.cli.main import main
raise SystemExit(main(["pack", {str(target)!r}, *{more}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (
        done.returncode == 1 and "cannot be written" in done.stderr and len(done.stderr.splitlines()) == 1 + len(more)
    )
    assert [p.name for p in target.parent.iterdir()] == ["target.gguf"]
