"""What the names of model files say."""

from __future__ import annotations

import re
from pathlib import Path

_PART = re.compile(r"-\d{5}-of-\d{5}$")
_QUANT = re.compile(r"[-._](ud-|i1-)?(i?q\d\w*|tq\d\w*|bf16|f16|f32|mxfp4\w*|nvfp4\w*)$", re.IGNORECASE)


def model_name(path: Path) -> str:
    """Without the ending, so that a model and its packed file (duo pack --replace) have one name."""
    return path.name.removesuffix(".gguf").removesuffix(".packed")


def base_name(path: Path) -> str:
    """Without what tells quantisations and parts of one model from each other: "glm-4.5-air" of
    GLM-4.5-Air-UD-Q4_K_XL-00001-of-00002.gguf."""
    return _QUANT.sub("", _PART.sub("", model_name(path))).lower()
