"""The child process of duo.generation.decoding: decodes files of pictures and sound, one after the other.

Arguments: bytes that a file may take, seconds of the processor for each, libraries to load (the last one is the
extension module). It uses only the standard library, so it starts in milliseconds. What a hostile file breaks is this
process only.

Standard output begins with HELLO (the bytes of why it cannot start, 0 if it can) and the reason. Standard input has
requests: HEAD (the file's bytes, bytes of the name of a projector), the file, the name. Without a name it is a picture,
otherwise sound. Standard output has answers: ANSWER (an outcome, width, height, bytes), and the pixels or samples.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from typing import BinaryIO

HELLO = struct.Struct("<I")
HEAD = struct.Struct("<QI")
ANSWER = struct.Struct("<BIIQ")
DECODED, REFUSED, DEAF = range(3)  # outcomes (csrc/llama/media_decoder.cpp); DEAF: the projector cannot be used
N_FILES_MOST = 16  # that it may open: one is enough
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38

# Outcome, width, height, pixels or samples.
Decode = Callable[[bytes, "bytes | None"], "tuple[int, int, int, memoryview | bytes]"]


class Decoded(ctypes.Structure):
    """duo_decoded (csrc/llama/media_decoder.cpp)."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("n_bytes", ctypes.c_uint64),
        ("width", ctypes.c_uint32),
        ("height", ctypes.c_uint32),
    ]


def decoder(libraries: Sequence[str]) -> Decode:
    """Raises OSError and AttributeError: one cannot be loaded."""
    *others, core = libraries
    for file in others:
        ctypes.CDLL(file, mode=ctypes.RTLD_GLOBAL)
    run = ctypes.CDLL(core).duo_decode_media  # not imported: it needs no Python
    run.restype = ctypes.c_int
    run.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.POINTER(Decoded)]
    found = Decoded()

    def decode(file: bytes, projector: bytes | None) -> tuple[int, int, int, memoryview | bytes]:
        outcome = int(run(file, len(file), projector, ctypes.byref(found)))
        data = memoryview((ctypes.c_ubyte * found.n_bytes).from_address(found.data)) if found.n_bytes else b""
        return outcome, found.width, found.height, data

    return decode


def limit(n_bytes: int) -> None:
    """No core file, no file written, few opened, no rights gained, and so many bytes more than now. If memory runs out,
    this process is the first to go."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    with contextlib.suppress(AttributeError, OSError):  # not Linux
        system = ctypes.CDLL(None)
        system.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        system.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = {"CORE": 0, "FSIZE": 0, "NOFILE": N_FILES_MOST}
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        limits["AS"] = int(file.read().split()[0]) * resource.getpagesize() + n_bytes
    for name, n in limits.items():
        with contextlib.suppress(OSError, ValueError):  # a smaller limit is there
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (n, n))


def limit_time(seconds: int) -> None:
    """From now on. At the end the system sends SIGXCPU, which kills."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    until = int(used.ru_utime + used.ru_stime) + 1 + seconds
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (until, hard))


def serve(decode: Decode, n_bytes: int, seconds: int, requests: BinaryIO, answers: BinaryIO) -> None:
    """Until there are no more requests."""
    limit(n_bytes)
    answers.write(HELLO.pack(0))
    answers.flush()
    while len(head := requests.read(HEAD.size)) == HEAD.size:
        n_file, n_name = HEAD.unpack(head)
        file = requests.read(n_file)
        name = requests.read(n_name)
        limit_time(seconds)
        outcome, width, height, data = decode(file, name or None)
        del file
        answers.write(ANSWER.pack(outcome, width, height, len(data)))
        answers.write(data)
        answers.flush()
        del data


def main() -> None:
    n_bytes, seconds, *libraries = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        decode = decoder(libraries)
    except (OSError, AttributeError) as e:
        why = str(e).encode(errors="replace")
        answers.write(HELLO.pack(len(why)) + why)
        answers.flush()
        os._exit(1)
    serve(decode, int(n_bytes), int(seconds), requests, answers)
    sys.stdout.flush()
    os._exit(0)  # no clean-up of libraries


if __name__ == "__main__":
    main()
