"""Figures and sentences as duo writes them."""

from __future__ import annotations


def gigabytes(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 50_000_000 else f"{n / 1e6:.0f} MB"


def plural(n: int, noun: str) -> str:
    """ "1 thread", "2 threads"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def quoted(value: object, n_most: int = 200) -> str:
    """A value as Python writes it, cut after n_most characters."""
    text = repr(value)
    return text if len(text) <= n_most else text[:n_most] + "..."


def one_line(e: BaseException | str, n_most: int | None = None) -> str:
    """A message on one line, cut after n_most characters; of an exception without one, the name of its class."""
    text = " ".join(str(e).split())[:n_most]
    return text or (type(e).__name__ if isinstance(e, BaseException) else "")
