"""How much a random test does: little by default, much in `make proof`, which sets DUO_TEST_SCALE as for C++ tests."""

import os

LARGE = float(os.environ.get("DUO_TEST_SCALE", "1")) > 1


def size(small: int, large: int) -> int:
    return large if LARGE else small
