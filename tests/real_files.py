"""Models as their authors trained them, which `make models` brings: tests marked real need them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from needs import required

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import real_models as brought  # type: ignore[import-not-found]  # noqa: E402  # tools/real_models.py

SMOLLM2, GEMMA3 = "smollm2-135m-q4_1", "gemma3-270m-q4_k_m"  # 100 and 250 MB
CODER, CODER_DRAFT = "qwen2.5-coder-1.5b-q4_k_m", "qwen2.5-coder-0.5b-q4_k_m"
TALES = ["The old lighthouse keeper", "Water boils when", "def fibonacci(n):\n", "The capital of France is"]
LIST = (
    "1. apples\n2. pears\n3. plums\n4. cherries\nThe same list again:\n1. apples\n2. pears\n"  # n-grams know the rest
)


def need_models(*names: str) -> list[Path]:
    """The files; without them the test is skipped, or fails if DUO_REQUIRE names models."""
    models = [brought.MODELS[name] for name in names]
    if missing := [m.name for m in models if not m.is_there()]:
        what = f"{', '.join(missing)} not in {brought.folder()}: run make models"
        if "models" in required():
            pytest.fail(what)
        pytest.skip(what)
    return [m.path for m in models]
