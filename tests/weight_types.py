"""Which weight types a test of kernels tries, in which architectures."""

from typing import Any

import pytest
from model_files import TYPES
from sizes import mostly_proof_of_two

# A kernel does not know which architecture it works for. So each type is tried in one with experts and one without, and
# `make proof` tries the others.
USUAL = ("q8_0", "q4_K", "iq3_s", "bf16")


def each_type(
    *architectures: str, whole: tuple[str, ...] = (), daily: tuple[str, ...] = (), kinds: tuple[str, ...] = TYPES
) -> Any:
    """A test for each architecture and type. whole, daily: architectures in which `make test`, or `make test-daily`,
    tries all types."""
    pairs = [(a, k) for a in architectures for k in kinds]
    usual = [(a, k) for a, k in pairs if a in whole or k in USUAL]
    once_a_day = [(a, k) for a, k in pairs if a in daily]
    return pytest.mark.parametrize(
        ("architecture", "kind"), mostly_proof_of_two(architectures, kinds, usual, once_a_day)
    )
