"""The model files of `make bench`: the demo pair in the sizes that its tables need. They are made once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks import models
from benchmarks.run_kernels import TYPES

from duo.gguf_tools.random_model import randomize
from duo.gguf_tools.widen import widen
from duo.models.demo import demo_pair

N_BYTES = {"target": 600e6, "d120": 110e6, "d240": 220e6}  # c = 0.2 and 0.4 of the target's pass
KERNEL_SHAPE = (1280, 3840, 26)  # that of run_kernels.py
DISK = 6_000_000_000


class PairFiles:
    """Paths in a folder. Call `made` before they are used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.small_target, self.small_draft = map(Path, demo_pair())
        self.target = folder / "t600.gguf"
        self.d120, self.d240 = folder / "d120.gguf", folder / "d240.gguf"
        self.useless = folder / "useless.gguf"
        self.kernels = folder / "kernels"

    def made(self, *, of_kernels: bool) -> Iterator[str]:
        """Makes what is missing; says what it begins with. of_kernels: also one file for each weight type."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(self.folder).free) < DISK and not self.target.exists():
            raise SystemExit(f"the model files need {DISK / 1e9:.0f} GB in {self.folder} and {free / 1e9:.1f} are free")
        for name, source in (("target", self.small_target), ("d120", self.small_draft), ("d240", self.small_draft)):
            path: Path = getattr(self, name)
            if not path.exists():
                yield path.name
                widen(source, path, size=N_BYTES[name])
        if not self.useless.exists():
            yield self.useless.name
            randomize(self.small_draft, self.useless, seed=7)
        for weights in TYPES.split(",") if of_kernels else ():
            wide = models.widened(self.small_target, self.kernels, KERNEL_SHAPE, "f16")
            out = self.kernels / f"{wide.stem.removesuffix('f16')}{weights}.gguf"
            if weights != "f16" and not out.exists():
                yield out.name
                models.quantized(wide, out, weights)
