"""For the tests of packed weights: a model of one's own, and its packed file."""

import shutil
from pathlib import Path

import pytest

from duo.models.demo import demo_pair
from duo.placement import packed, packed_writer
from duo.placement.packing import NONE, Packing


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return Path(shutil.copy(demo_pair()[0], tmp_path / "target.gguf"))


def packed_file(model: Path, packing: Packing = NONE) -> Path:
    out = packed.default_path(str(model), packing)
    assert packed_writer.pack(str(model), out, packing, 2) == out.stat().st_size
    return out


def whole_file(model: Path) -> Path:
    """A packed file that can take the model's place. The model's file stays."""
    out = packed.whole_path(str(model))
    assert packed_writer.pack(str(model), out, NONE, 2, whole=True) == out.stat().st_size
    return out
