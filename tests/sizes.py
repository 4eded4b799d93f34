"""How much a test tries: little by default, much in `make proof`, which sets DUO_TEST_SCALE as for C++ tests."""

import os
from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

import pytest

LARGE = float(os.environ.get("DUO_TEST_SCALE", "1")) > 1


def size(small: int, large: int) -> int:
    return large if LARGE else small


def mostly_proof(values: Iterable[Any], usual: Collection[Any]) -> list[Any]:
    """For parametrize: `make test` tries the usual ones, which stand for the others; `make proof` tries all. Values may
    be tuples of several parameters."""
    return _mostly(values, usual, pytest.mark.proof)


def mostly_daily(values: Iterable[Any], usual: Collection[Any]) -> list[Any]:
    """The same, and the others are tried once a day (`make test-daily`)."""
    return _mostly(values, usual, pytest.mark.daily)


def _mostly(values: Iterable[Any], usual: Collection[Any], mark: pytest.MarkDecorator) -> list[Any]:
    values = list(values)
    assert all(v in values for v in usual)
    return [v if v in usual else pytest.param(*(v if type(v) is tuple else (v,)), marks=mark) for v in values]


def mostly_proof_of_two(
    first: Iterable[Any],
    second: Iterable[Any],
    usual: Collection[tuple[Any, Any]],
    daily: Collection[tuple[Any, Any]] = (),
) -> list[Any]:
    """mostly_proof for all pairs of two parameters; `daily` ones are for `make test-daily`."""
    cases = list(product(first, second))
    assert {*usual, *daily} <= set(cases)

    def mark(c: tuple[Any, Any]) -> Any:
        return () if c in usual else pytest.mark.daily if c in daily else pytest.mark.proof

    return [pytest.param(*c, marks=mark(c), id="-".join(map(str, c))) for c in cases]
