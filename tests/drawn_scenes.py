"""Pictures of two drawn things, and what to say of them. A pair was trained on such scenes (tools/seeing_pair.py)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf_files import Array
from vision_models import png_of

DATA = Path(__file__).with_name("data")
TARGET, DRAFT, PROJECTOR = (DATA / f"seeing-{name}.gguf" for name in ("target", "draft", "mmproj"))
ASKED = " picture:<__media__> words:"  # the pair's only prompt

SIDE = 32  # pixels
COLOURS = {
    "red": (210, 40, 40), "green": (40, 160, 60), "blue": (50, 70, 210), "yellow": (225, 200, 40), "black": (25, 25, 25)
}  # fmt: skip
# Whether a point is inside. The middle is (0, 0), y grows downward, and things are about 2 wide.
SHAPES = {
    "circle": lambda x, y: x**2 + y**2 < 0.9,
    "square": lambda x, y: np.maximum(np.abs(x), np.abs(y)) < 0.85,
    "triangle": lambda x, y: (y < 0.8) & (np.abs(x) < (y + 1) / 1.8),
    "cross": lambda x, y: (np.minimum(np.abs(x), np.abs(y)) < 0.28) & (np.maximum(np.abs(x), np.abs(y)) < 1),
    "ring": lambda x, y: np.abs(np.hypot(x, y) - 0.75) < 0.24,
}
SIZES = {"small": 3.6, "large": 6.6}  # half the width, in pixels
PLACES = {"left of": (-7.5, 0.0), "above": (0.0, -7.5)}  # of the first thing, from the middle; the other is opposite


@dataclass(frozen=True)
class Thing:
    size: str
    colour: str
    shape: str

    def __str__(self) -> str:
        return f"{self.size} {self.colour} {self.shape}"


@dataclass(frozen=True)
class Scene:
    first: Thing
    second: Thing
    place: str

    @property
    def caption(self) -> str:
        """The second half follows from the first, so that a draft that does not see can guess it."""
        a, b = self.first, self.second
        return (
            f" a {a} is {self.place} a {b}. the {a.shape} is {a.colour} and {a.size}. "
            f"the {b.shape} is {b.colour} and {b.size}."
        )


def words() -> list[str]:
    found = ["picture", "words", "a", "is", "the", "and", *COLOURS, *SHAPES, *SIZES]
    return [*found, *(word for place in PLACES for word in place.split())]


def scene(rng: np.random.Generator) -> Scene:
    """Two things of different shapes."""
    shapes = rng.permutation(list(SHAPES))
    a, b = (Thing(str(rng.choice(list(SIZES))), str(rng.choice(list(COLOURS))), str(s)) for s in shapes[:2])
    return Scene(a, b, str(rng.choice(list(PLACES))))


def drawn(s: Scene, rng: np.random.Generator) -> Array:
    """[SIDE, SIDE, 3] of 0 to 255. Places, sizes, colours and the paper differ a little each time."""
    at = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
    x, y = np.meshgrid(at, at)
    pixels = np.full((SIDE, SIDE, 3), rng.integers(225, 256, 3), np.float32)
    for sign, thing in ((1, s.first), (-1, s.second)):
        dx, dy = np.array(PLACES[s.place]) * sign + rng.uniform(-1, 1, 2)
        half = SIZES[thing.size] * rng.uniform(0.94, 1.06)
        inside = SHAPES[thing.shape]((x - dx) / half, (y - dy) / half)
        pixels[inside] = np.array(COLOURS[thing.colour]) + rng.integers(-15, 16, 3)
    noise = rng.normal(0, 3, pixels.shape)
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)


def fresh(seed: int) -> tuple[Scene, bytes]:
    """A scene and its PNG file, which no training has seen: trainings draw from seeds below a million."""
    rng = np.random.default_rng(1_000_000 + seed)
    s = scene(rng)
    return s, png_of(SIDE, SIDE, b"".join(b"\0" + row.tobytes() for row in drawn(s, rng)))
