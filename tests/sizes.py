"""How much a test tries: little, also in `make test-daily`; much in `make proof`, which sets DUO_TEST_SCALE."""

import os
from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

import pytest

LARGE = float(os.environ.get("DUO_TEST_SCALE", "1")) > 1


def size(small: int, large: int) -> int:
    return large if LARGE else small


def mostly_proof(values: Iterable[Any], usual: Collection[Any], daily: Collection[Any] = ()) -> list[Any]:
    """For parametrize: `make test` tries the usual ones, which stand for the others; `make test-daily` tries the daily
    ones, and `make proof` tries all. Values may be tuples of several parameters."""
    values = list(values)
    assert all(v in values for v in [*usual, *daily])
    return [
        v if v in usual else pytest.param(*(v if type(v) is tuple else (v,)), marks=_marks(v, usual, daily))
        for v in values
    ]


def mostly_daily(values: Iterable[Any], usual: Collection[Any]) -> list[Any]:
    """The same, and all others are daily."""
    values = list(values)
    return mostly_proof(values, usual, values)


def mostly_proof_of_two(
    first: Iterable[Any],
    second: Iterable[Any],
    usual: Collection[tuple[Any, Any]],
    daily: Collection[tuple[Any, Any]] = (),
) -> list[Any]:
    """mostly_proof for all pairs of two parameters, with both in the test's id."""
    cases = list(product(first, second))
    assert {*usual, *daily} <= set(cases)
    return [pytest.param(*c, marks=_marks(c, usual, daily), id="-".join(map(str, c))) for c in cases]


def _marks(value: Any, usual: Collection[Any], daily: Collection[Any]) -> Any:
    return () if value in usual else pytest.mark.daily if value in daily else pytest.mark.proof
