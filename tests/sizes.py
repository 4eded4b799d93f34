"""How much a random test does: little by default, much in `make proof` (DUO_TEST_LARGE=1)."""

import os

LARGE = os.environ.get("DUO_TEST_LARGE", "") not in ("", "0")


def size(small: int, large: int) -> int:
    return large if LARGE else small
