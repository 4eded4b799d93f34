"""Wheels with llama.cpp inside: what dist/ has, and a Debian with nothing but Python to try them in."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
BARE = "bookworm"  # its Python is 3.11
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"


def found(machine: str) -> list[Path]:
    """Wheels for this kind of processor ("x86_64"), each for another CPython."""
    return sorted(DIST.glob(f"duo_llama-*_{machine}.whl"))


def wheels() -> list[Path]:
    if not (made := found("x86_64")):
        pytest.fail(f"there is no wheel in {DIST}; run make wheel", pytrace=False)
    return made


def wheel_for(tag: str) -> Path:
    """The wheel for this CPython ("cp311")."""
    made = [w for w in wheels() if f"-{tag}-" in w.name]
    if not made:
        pytest.skip(f"no wheel for {tag}")
    return made[0]


def has_plugin(wheel: Path, kind: str) -> bool:
    """kind: "vulkan" or "cuda"."""
    with zipfile.ZipFile(wheel) as z:
        return f"duo/llama_cpp/lib/libggml-{kind}.so" in z.namelist()


def metadata_of(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as z:
        (name,) = (n for n in z.namelist() if n.endswith(".dist-info/METADATA"))
        return z.read(name).decode()


class BareDebian:
    """A folder with Debian, Python and pip, and no compiler; what runs in it has no network."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
            pytest.skip("needs root and mmdebstrap")
        self._root = folder / "debian"
        packages = "--include=python3,python3-pip,python3-venv"
        debian = ["mmdebstrap", "--quiet", "--variant=minbase", packages, BARE, str(self._root)]
        subprocess.run(debian, check=True)
        home = self._root / "root"
        (home / "wheelhouse").mkdir()
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
        python = ["--python-version", "3.11", "--only-binary", ":all:"]
        subprocess.run([*pip, *python, "-d", str(home / "wheelhouse"), str(wheel)], check=True)

    def run(self, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """In the home folder of root, without a network but for 127.0.0.1."""
        script = (
            'mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && ip link set lo up && '
            'exec chroot "$0" sh -c "cd && PATH=\\$PWD/venv/bin:\\$PATH && exec \\"\\$@\\"" sh "$@"'
        )
        own = ["unshare", "--net", "--mount", "--pid", "--fork", "sh", "-c", script, str(self._root), *command]
        env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", **environment}
        return subprocess.run(own, env=env, capture_output=True, text=True, timeout=300, check=False)

    def has(self, program: str) -> bool:
        return self.run("sh", "-c", f"command -v {program}").returncode == 0

    def write(self, name: str, text: str) -> None:
        (self._root / "root" / name).write_text(text, "utf-8")
