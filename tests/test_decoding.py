"""Pictures are decoded in a child process: what one breaks there is its own request, and no other."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hearing_models import wav
from picture_files import samples
from vision_models import png, png_of
from waits import in_threads

from duo import BadValueError, DuoError
from duo.generation import decoding, media_child
from duo.generation.decoding import Decoders

# As media_child, with a decoder that does what a file says.
HOSTILE = """
import os, sys, time
sys.path.insert(0, {folder!r})
import media_child as child

def decode(file, projector):
    if file == b"CRASH":
        os.abort()
    if file == b"WRITE":
        os.write(os.open({written!r}, os.O_CREAT | os.O_WRONLY), b"x")
    if file == b"SLEEP":
        time.sleep(600)
    if file == b"BOMB":
        return child.DECODED, 1, 1, bytes(8 << 30)
    if file == b"LIE":
        return child.DECODED, 60_000, 60_000, b"abc"
    if file == b"LONG":
        return child.DECODED, 0, 0, bytes({long})
    if file == b"DEAF":
        return child.DEAF, 0, 0, b""
    if file == b"SECRET" and ("DUO_API_KEY" in os.environ or os.path.exists("/proc/self/fd/{fd}")):
        os.abort()
    return (child.REFUSED, 0, 0, b"") if file == b"BAD" else (child.DECODED, 2, 1, b"abcdef")

child.serve(decode, int(sys.argv[1]), int(sys.argv[2]), sys.stdin.buffer, sys.stdout.buffer)
"""
GOOD = b"GOOD"
FD = 99  # a file that this process has open, and no child


@pytest.fixture
def decoders() -> Iterator[Decoders]:
    d = Decoders()
    yield d
    d.end()


@pytest.fixture
def hostile(decoders: Decoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Decoders:
    script = tmp_path / "child.py"
    folder, written = str(Path(media_child.__file__).parent), str(tmp_path / "written")
    script.write_text(HOSTILE.format(folder=folder, written=written, long=decoding.N_BYTES_DECODED + 4, fd=FD))
    monkeypatch.setattr(decoding, "CHILD", script)
    monkeypatch.setattr(decoding, "CPU_S", 1)
    return decoders


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"CRASH", r"picture 1 ended its decoder \(SIGABRT\)"),
        (b"BOMB", "exit code 1"),
        (b"WRITE", "exit code 1"),
        (b"LIE", "holds more"),
        (b"LONG", "holds more"),
        (b"BAD", "cannot be decoded"),
    ],
)
def test_what_a_file_breaks_is_its_own_request(hostile: Decoders, file: bytes, why: str) -> None:
    hostile.media(GOOD, "picture 1")
    with pytest.raises(BadValueError, match=why) as e:
        hostile.media(file, "picture 1")
    assert "\n" not in str(e.value) and str(e.value).startswith("picture 1 ")
    hostile.media(GOOD, "picture 1")


def test_a_decoder_that_sleeps_is_ended(hostile: Decoders, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile.media(GOOD, "picture 1")
    monkeypatch.setattr(decoding, "WALL_S", 0.2)
    with pytest.raises(BadValueError, match="took too long"):
        hostile.media(b"SLEEP", "picture 1")


def test_others_are_unharmed(hostile: Decoders) -> None:
    def tried(file: bytes) -> bool:
        try:
            return hostile.media(file, "picture 1") is not None
        except BadValueError:
            return False

    files = [GOOD, b"CRASH", GOOD, GOOD, b"LIE", GOOD, GOOD, b"BAD", GOOD]
    assert in_threads(*(partial(tried, f) for f in files)) == [f == GOOD for f in files]


def test_the_real_decoder_has_limits(decoders: Decoders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checks of headers that come before it."""
    monkeypatch.setattr(decoding, "CPU_S", 1)
    file = samples()["jpeg-progressive"]
    head = bytearray(file[: file.index(b"\xff\xda")])
    size = head.index(b"\xff\xc2") + 5
    head[size : size + 4] = struct.pack(">HH", 7000, 7000)
    scan = bytes.fromhex("ffda000c03010002000300000010")  # it takes no data and goes over all pixels
    with pytest.raises(BadValueError, match="took too long"):
        decoders.media(bytes(head + scan * 5000), "picture 1")
    for bomb in (png_of(60_000, 60_000, b""), png_of(30_000, 30_000, b"\0" * 1000)):
        with pytest.raises(BadValueError, match=r"cannot be decoded|ended its decoder"):
            decoders.media(bomb, "picture 1")
    assert decoders.media(png(), "picture 1")


def test_a_child_serves_many_files_and_is_replaced_when_it_is_gone(
    decoders: Decoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*args, **options))
        return started[-1]

    monkeypatch.setattr(decoding, "Popen", start)
    for seed in range(5):
        decoders.media(png(seed=seed), "picture 1")
    assert len(started) == 1
    started[0].kill()
    started[0].wait()
    decoders.media(png(), "picture 1")
    assert len(started) == 2
    decoders.end()
    assert started[1].poll() is not None
    decoders.media(png(), "picture 1")  # it starts anew
    assert len(started) == 3


def test_what_is_wrong_with_the_program_is_no_fault_of_the_file(
    decoders: Decoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DuoError that is no BadValueError: a server answers 500."""
    (tmp_path / "exits.py").write_text("raise SystemExit(7)")
    (tmp_path / "sleeps.py").write_text("import time; time.sleep(600)")
    broken = tmp_path / "libmtmd.so"
    broken.write_bytes(b"no library")
    for child, files, why in (
        (decoding.CHILD, [tmp_path / "libnone.so"], r"libnone\.so: cannot open"),
        (decoding.CHILD, [broken], r"libmtmd\.so: (file too short|invalid ELF)"),
        (tmp_path / "exits.py", [], "exit code 7"),
        (tmp_path / "sleeps.py", [], "not ready"),
    ):
        monkeypatch.setattr(decoding, "CHILD", child)
        monkeypatch.setattr(decoding, "libraries", lambda files=files: files)
        monkeypatch.setattr(decoding, "START_S", 0.2 if child.stem == "sleeps" else 50.0)
        with pytest.raises(DuoError, match=why) as e:
            decoders.media(png(), "picture 1")
        assert not isinstance(e.value, BadValueError) and "\n" not in str(e.value)
        assert "picture 1" not in str(e.value)
    monkeypatch.undo()
    assert decoders.media(png(), "picture 1")


def test_a_projector_that_cannot_be_loaded_is_no_fault_of_the_sound(decoders: Decoders, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(DuoError, match="hears with") as e:
        decoders.media(wav(), "sound 1", str(tmp_path / "bad.gguf"))
    assert not isinstance(e.value, BadValueError)


def test_the_child_has_no_secrets(hostile: Decoders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUO_API_KEY", "x")
    fd = os.dup2(1, FD, inheritable=True)
    try:
        hostile.media(b"SECRET", "picture 1")
    finally:
        os.close(fd)


def test_no_process_can_be_started(decoders: Decoders, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(decoding, "Popen", start)
    with pytest.raises(DuoError, match="Cannot allocate memory"):
        decoders.media(png(), "picture 1")


def test_damaged_files_end_no_child(decoders: Decoders) -> None:
    """They are refused by the decoder itself."""
    rng = random.Random(3)
    for name, file in samples().items():
        cut = file[: rng.randrange(20, len(file) // 2)]
        try:
            decoders.media(cut, "picture 1")
        except BadValueError as e:
            assert "cannot be decoded" in str(e), name
