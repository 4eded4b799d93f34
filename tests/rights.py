"""Root may read files whatever their permissions say. Tests of permissions give that right up."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

READS_ALL = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
VERSION = 0x20080522


@contextmanager
def of_an_ordinary_user() -> Iterator[None]:
    """This thread, and threads that it starts, read only what permissions allow (Linux: capset(2))."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "capset"):
        pytest.skip("root may read everything here")
    header = (ctypes.c_uint32 * 2)(VERSION, 0)
    had, less = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice
    for sets in (had, less):
        assert libc.capget(header, sets) == 0, os.strerror(ctypes.get_errno())
    less[0] &= ~READS_ALL & 0xFFFFFFFF
    assert libc.capset(header, less) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        assert libc.capset(header, had) == 0, os.strerror(ctypes.get_errno())
