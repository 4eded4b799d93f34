"""Figures and sentences as duo writes them."""

from __future__ import annotations


def gigabytes(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 50_000_000 else f"{n / 1e6:.0f} MB"
