"""Decodes files of pictures and sound in a child process with limits of memory and time.

The decoders (stb_image, miniaudio) read what anybody may send. What a file breaks is the child, and its request gets
one sentence. A child starts with the first file and is kept for the next ones; more of them start if several requests
come at once.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from duo import _core
from duo._libs import libraries
from duo.errors import BadValueError, DuoError
from duo.generation.media_child import ANSWER, DEAF, DECODED, HEAD, HELLO
from duo.support.picture_file import N_BYTES_DECODED
from duo.support.wording import one_line

CHILD = Path(__file__).with_name("media_child.py")
N_CHILDREN = 4  # at once; others wait
N_BYTES_MOST = 2 << 30  # of memory: a picture of the largest size takes about one gigabyte on the way
CPU_S, WALL_S = 20, 90.0  # for one file; usual pictures take hundredths of a second
START_S = 60.0  # a start takes hundredths of a second where nothing else runs
# What the loader of libraries reads. The rest (keys, tokens) is none of the decoders' business.
ENVIRONMENT = (
    "PATH", "SYSTEMROOT", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH",
)  # fmt: skip
_NO_WINDOW = getattr(subprocess, "CREATE_NO_WINDOW", 0)


class _DiedError(Exception):
    """Why there is no answer. crashed: a file before may be to blame."""

    def __init__(self, why: str, *, crashed: bool = False) -> None:
        super().__init__(why)
        self.crashed = crashed


class _Child:
    """One process, and one file at a time."""

    def __init__(self) -> None:
        """Raises DuoError: it cannot be started, which is no file's fault."""
        self.is_new = True
        if not sys.executable or getattr(sys, "frozen", False):
            raise DuoError("pictures are decoded by a Python interpreter, and this program is none; start duo with one")
        command = [sys.executable, "-I", "-S", str(CHILD), str(N_BYTES_MOST), str(CPU_S)]
        command += [str(file) for file in (*libraries(), _core.__file__)]
        kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        hidden = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "")  # no time for GPUs
        try:
            self._process = Popen(
                command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
                env={**kept, **hidden, "GGML_NO_BACKTRACE": "1"}, creationflags=_NO_WINDOW,
            )  # fmt: skip
        except (OSError, ValueError) as e:
            why = getattr(e, "strerror", None) or e
            raise DuoError(f"the process that decodes pictures cannot be started ({why}); free some memory") from None
        try:
            why = self._hello()
        except BaseException:
            self.end()
            raise
        if why:
            self.end()
            raise DuoError(
                f"the process that decodes pictures cannot be started ({why}); check duo's installation and the free "
                "memory"
            )

    def _hello(self) -> str:
        """Why it cannot work; empty: it can."""
        back = self._process.stdout
        assert back is not None
        with self._ended_after(START_S) as late:
            head = back.read(HELLO.size)
            if len(head) == HELLO.size:
                return one_line(back.read(HELLO.unpack(head)[0]).decode(errors="replace"))
        self.end()
        return f"it was not ready after {START_S:.0f} s" if late.is_set() else f"it ended with {self._how_it_ended()}"

    def _how_it_ended(self) -> str:
        """A signal's name, or an exit code."""
        code = self._process.returncode
        known = {int(s): s.name for s in signal.Signals}
        return known.get(-code, f"signal {-code}") if code < 0 else f"exit code {code}"

    @contextmanager
    def _ended_after(self, seconds: float) -> Iterator[threading.Event]:
        """The event is set if its time is over."""
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            yield late
        finally:
            timer.cancel()

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def decode(self, file: bytes, projector: bytes) -> tuple[int, int, bytes | bytearray] | None:
        """Width, height, and what the file holds. None: it cannot be decoded. Raises _DiedError, with the reason, and
        DuoError: the projector cannot be used."""
        with self._ended_after(WALL_S) as late:
            try:
                return self._answer(file, projector)
            except (OSError, EOFError):
                self.end()
                how = self._how_it_ended()
                if late.is_set() or how == "SIGXCPU":
                    raise _DiedError("took too long to decode") from None
                raise _DiedError(f"ended its decoder ({how})", crashed=True) from None
            except BaseException:  # what comes of this file would be taken for the next one's
                self.end()
                raise

    def _answer(self, file: bytes, projector: bytes) -> tuple[int, int, bytes | bytearray] | None:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        to.write(HEAD.pack(len(file), len(projector)))
        to.write(file)
        to.write(projector)
        to.flush()
        head = back.read(ANSWER.size)
        if len(head) < ANSWER.size:
            raise EOFError
        outcome, width, height, n = ANSWER.unpack(head)
        if outcome == DEAF:
            raise DuoError("the process that decodes sound cannot load the file that it hears with; free some memory")
        if outcome != DECODED:
            return None
        if n > N_BYTES_DECODED or n != (width * height * 3 if width else n // 4 * 4):
            self.end()  # a sound that is too long, or a child that a file has taken over
            raise _DiedError(f"holds more than {N_BYTES_DECODED // 1_000_000} MB")
        data = bytearray(n)
        if back.readinto(data) < n:  # type: ignore[attr-defined]  # it is buffered
            raise EOFError
        return width, height, data

    def end(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()


class Decoders:
    """Children that are kept for the next file."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """After a fork: the children are the parent's."""
        self._idle: list[_Child] = []
        self._free = threading.BoundedSemaphore(N_CHILDREN)

    def media(self, file: bytes, which: str, projector: str | None = None) -> _core.Media:
        """which: says in messages which file it is. projector: for sound, a file of a kind that hears. Raises
        BadValueError: it cannot be decoded; DuoError: no process can be started, or it cannot hear."""
        try:
            found = self._decode(file, os.fsencode(projector or ""))
        except _DiedError as e:
            raise BadValueError(f"{which} {e}; save it anew, or a part of it") from None
        if found is None:
            raise BadValueError(f"{which} is damaged or of a kind that cannot be decoded; save it anew")
        width, height, data = found
        name = hashlib.sha256(file).hexdigest()  # libmtmd names bitmaps so, too
        return _core.Media.picture(data, width, height, name) if width else _core.Media.sound(data, name)

    def _decode(self, file: bytes, projector: bytes) -> tuple[int, int, bytes | bytearray] | None:
        with self._child() as child:
            try:
                return child.decode(file, projector)
            except _DiedError as e:
                if child.is_new or not e.crashed:
                    raise
        with self._child(fresh=True) as child:
            return child.decode(file, projector)

    @contextmanager
    def _child(self, *, fresh: bool = False) -> Iterator[_Child]:
        """fresh: a new one."""
        with self._free:
            child = None
            with suppress(IndexError):
                child = None if fresh else self._idle.pop()
            if child is not None and not child.lives:
                child.end()
                child = None
            child = child or _Child()
            yield child
            child.is_new = False
            if child.lives:
                self._idle.append(child)

    def end(self) -> None:
        while self._idle:
            self._idle.pop().end()


decoders = Decoders()
atexit.register(decoders.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=decoders.forget)
