"""A file on a disk that fails when it is told to: a file system in user space (FUSE) that has one file. Linux, root.

with failing_disk(source, place) as disk:  # disk.file has the bytes of source
    disk.fail()  # reading it is an error (EIO) from now on, and nothing of it is left in memory
"""

import ctypes
import errno
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from waits import in_time


@dataclass
class FailingDisk:
    file: Path
    orders: IO[str]
    answers: IO[str]

    def fail(self) -> None:
        self.orders.write("fail\n")
        self.orders.flush()
        assert self.answers.readline() == "fails\n"


@contextmanager
def failing_disk(source: Path, place: Path) -> Iterator[FailingDisk]:
    place.touch()
    command = [sys.executable, __file__, str(source), str(place)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as server:
        assert server.stdin and server.stdout and server.stderr
        try:
            with in_time(server):
                if server.stdout.readline() != "is there\n":
                    pytest.skip(f"no file system could be mounted here: {server.stderr.read().strip()}")
                yield FailingDisk(place, server.stdin, server.stdout)
        finally:
            subprocess.run(["umount", "-l", place], capture_output=True, check=False)  # it may not be mounted
            server.kill()


# ---- the file system (linux/fuse.h)

FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 2, 3, 14, 15, 18, 25, 26, 36, 42
ROOT, LONG_S, KEEP_CACHE, INVALIDATE_INODE = 1, 3600, 2, 2


def answer_of(opcode: int, body: bytes, file: int, fails: bool) -> bytes | int:
    """What a request gets: bytes, or the number of an error."""
    if opcode == INIT:
        return struct.pack("=4I2H2I2HI7I", 7, 31, 1 << 17, 0, 16, 12, 1 << 16, 1, 0, 0, 0, *[0] * 7)
    if opcode == GETATTR:
        facts = os.fstat(file)
        s, ns = divmod(facts.st_mtime_ns, 10**9)
        of_file = facts.st_size, facts.st_blocks, s, s, s, ns, ns, ns, 0o100444, 1
        attributes = struct.pack("=6Q10I", ROOT, *of_file, 0, 0, 0, 4096, 0)
        return struct.pack("=QII", LONG_S, 0, 0) + attributes
    if opcode == OPEN:
        return struct.pack("=QII", 0, KEEP_CACHE, 0)
    if opcode == READ:
        _, offset, n = struct.unpack_from("=QQI", body)
        return errno.EIO if fails else os.pread(file, n, offset)
    return b"" if opcode in (RELEASE, FLUSH) else errno.ENOSYS


def serve(source: str, place: str) -> None:
    """Mounts the file at `place`, which is a file, too. A line of standard input makes it fail."""
    file, device = os.open(source, os.O_RDONLY), os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=100444,user_id=0,group_id=0"
    if libc.mount(b"duo-test", os.fsencode(place), b"fuse", ctypes.c_ulong(0), options.encode()) != 0:
        raise SystemExit(os.strerror(ctypes.get_errno()))
    fails = threading.Event()

    def listen() -> None:
        print("is there", flush=True)
        for _ in sys.stdin:
            fails.set()
            os.write(device, struct.pack("=IiQQqq", 40, INVALIDATE_INODE, 0, ROOT, 0, 0))
            print("fails", flush=True)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError as e:
            if e.errno == errno.ENODEV:  # nobody has it any more
                return
            raise
        _, opcode, number = struct.unpack_from("=IIQ", request)
        if opcode not in (FORGET, INTERRUPT, BATCH_FORGET):  # which get no answer
            answer = answer_of(opcode, request[40:], file, fails.is_set())
            error, body = (0, answer) if isinstance(answer, bytes) else (-answer, b"")
            os.write(device, struct.pack("=IiQ", 16 + len(body), error, number) + body)


if __name__ == "__main__":
    serve(*sys.argv[1:])
