"""Which weight types a test of kernels tries, in which architectures."""

from typing import Any

import pytest
from model_files import TYPES
from sizes import mostly_proof_of_two

# A kernel does not know which architecture it works for. So `make test` tries these: whole numbers of 8 bits, blocks of
# blocks, numbers from a table, and numbers of 16 bits.
USUAL = ("q8_0", "q4_K", "iq3_s", "bf16")
FEW = ("q4_K",)


def each_type(
    *architectures: str, few: tuple[str, ...] = (), daily: tuple[str, ...] = (), kinds: tuple[str, ...] = TYPES
) -> Any:
    """A test for each architecture and type. few: architectures in which `make test` tries one type, and
    `make test-daily` the usual ones; daily: those in which `make test-daily` tries all."""
    pairs = [(a, k) for a in architectures for k in kinds]
    usual = [(a, k) for a, k in pairs if k in (FEW if a in few else USUAL)]
    once_a_day = [(a, k) for a, k in pairs if a in daily or k in USUAL]
    return pytest.mark.parametrize(
        ("architecture", "kind"), mostly_proof_of_two(architectures, kinds, usual, once_a_day)
    )
