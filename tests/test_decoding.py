"""Pictures are decoded in a child process: what one breaks there is its own request, and no other."""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
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
        return 1, 1, bytes(8 << 30)
    if file == b"LIE":
        return 60_000, 60_000, b"abc"
    if file == b"LONG":
        return 0, 0, bytes({long})
    return None if file == b"BAD" else (2, 1, b"abcdef")

child.serve(decode, int(sys.argv[3]), int(sys.argv[4]), sys.stdin.buffer, sys.stdout.buffer)
"""
GOOD = b"GOOD"


@pytest.fixture
def decoders() -> Iterator[Decoders]:
    d = Decoders()
    yield d
    d.end()


@pytest.fixture
def hostile(decoders: Decoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Decoders:
    script = tmp_path / "child.py"
    folder, written = str(Path(media_child.__file__).parent), str(tmp_path / "written")
    script.write_text(HOSTILE.format(folder=folder, written=written, long=decoding.N_BYTES_DECODED + 4))
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
