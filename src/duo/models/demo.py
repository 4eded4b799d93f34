"""The demo pair: two small models that come with the package."""

from __future__ import annotations

from pathlib import Path


def demo_pair() -> tuple[Path, Path]:
    """Paths of the demo target and the demo draft."""
    data = Path(__file__).parents[1] / "data"
    return data / "duo-demo-target-q8_0.gguf", data / "duo-demo-draft-q8_0.gguf"


def demo_head() -> Path:
    """Path of the EAGLE-3 head for the demo target."""
    return demo_pair()[0].parent / "duo-demo-eagle3-q8_0.gguf"
