"""Random ways to write a text that must all give the same text: modes, drafts, trees, n-grams, texts at once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from benchmarks.torture.catalogue import EXACT, N_CTX, Models
from benchmarks.torture.room import Room

from duo import Duo
from duo.gguf_tools.switched_duo import SwitchedDuo

NGRAMS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v")


def random_models(room: Room, rng: random.Random) -> tuple[Models, Path | None]:
    name = rng.choices(("demo", "wild", "recurrent"), (6, 2, 2))[0]
    models = room.models[name]
    return models, rng.choice(models.drafts)


def is_head(draft: Path | None) -> bool:
    return draft is not None and "eagle3" in draft.name


def random_duo(room: Room, rng: random.Random, **more: Any) -> tuple[str, Duo]:
    """The name of its models, and a loaded pair."""
    models, draft = random_models(room, rng)
    options: dict[str, Any] = {
        "n_ctx": 4 * N_CTX,
        "n_parallel": rng.choice((1, 1, 2, 4)),
        "always": rng.random() < 0.8,
        "delay": (rng.choice((0, 0, 500, 3000)), rng.randrange(1000)),
        "cache_ram": rng.choice((0, 0, 2)),
        "n_threads": rng.choice((1, 2)),
        "n_threads_draft": 1,
        **EXACT,
        **more,
    }
    return models.name, SwitchedDuo(models.target, draft, **options)


def random_way(rng: random.Random, d: Duo) -> dict[str, Any]:
    """Options of a text that change how it is made, and not what it says."""
    o: dict[str, Any] = {"mode": rng.choice(("async", "async", "async", "sync", "plain"))}
    draft = d.engine.draft
    head = draft is not None and draft.head
    if rng.random() < 0.5:
        o["n_draft"] = rng.choice((1, 2, 4, 8))
    if not head and rng.random() < 0.3:
        o["spec_type"] = f"draft-simple,{rng.choice(NGRAMS)}" if draft is not None else rng.choice(NGRAMS)
    if not head and draft is not None and rng.random() < 0.2:
        o["draft_tree"] = rng.choice(([[0], [1], [0, 0]], "chain", "dynamic"))
        if o["draft_tree"] == "dynamic":
            o["n_draft"] = 8
    if rng.random() < 0.1:
        o["cache_prompt"] = False
    return o
