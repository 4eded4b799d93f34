"""A text whose state is kept: as an object, or in a file that a later run reads."""

from functools import cache
from typing import Any

from conftest import EXACT

from duo import Duo
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

TARGET, DRAFT = demo_pair()
PROMPT = "The rain fell on the town all night, and the old clock struck. " * 12
LOAD: dict[str, Any] = {"n_ctx": 512, **EXACT}
GREEDY = {"max_tokens": 40, "temperature": 0, "ignore_eos": True}
SEEDED = {**GREEDY, "temperature": 0.9, "seed": 5}


def loaded(**options: Any) -> Duo:
    return SwitchedDuo(TARGET, DRAFT, always=True, **{**LOAD, **options})


@cache
def without_state() -> dict[str, tuple[int, ...]]:
    """The tokens that are written if nothing was kept."""
    with loaded() as d:
        return {name: d.generate(PROMPT, **o).tokens for name, o in (("greedy", GREEDY), ("seeded", SEEDED))}
