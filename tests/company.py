"""Mixed requests for several texts at once, and ways to ask them."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from waits import join

from duo import Duo, Result
from duo.generation.stream import Stream

PROMPTS = [
    "Once upon a time", "The king said", "There was a little girl who", "In the forest lived", "A long time ago",
    "The old man", "One day the dog", "She opened the door and", "It was raining when", "My brother and I",
]  # fmt: skip
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}}
YES_OR_NO = 'root ::= ("yes" | "no") (" " ("yes" | "no"))*'

Request = tuple[str, dict[str, Any]]


def bent(ids: Any, scores: Any) -> Any:
    """A logits_processor that depends on the whole text and on every score."""
    return np.roll(scores, len(ids) % 3) * np.single(0.5) + scores


def ends_at_30(ids: Any, scores: Any) -> bool:
    """A stopping_criteria."""
    return len(ids) >= 30


def requests(n: int, seed: int) -> list[Request]:
    """Mixed ones: greedy and seeded, stops, grammars, biases, hooks, modes, drafts and n-grams, long and short."""
    dice = random.Random(seed)
    found = []
    for i in range(n):
        prompt = dice.choice(PROMPTS)
        if dice.random() < 0.15:
            prompt = " ".join(dice.choices(PROMPTS, k=dice.choice([40, 100])))
        options: dict[str, Any] = {"max_tokens": dice.choice([1, 5, 20, 60]), "seed": i}
        options["temperature"] = dice.choice([0, 0, 0.8, 1.1])
        options["mode"] = dice.choice(["async", "async", "sync", "plain"])
        more: list[tuple[float, dict[str, Any]]] = [
            (0.2, {"stop": [".", " the "]}),
            (0.1, {"json_schema": SCHEMA}),
            (0.2, {"n_draft": dice.choice([1, 4, 8])}),
            (0.1, {"draft_tree": [[0], [1], [0, 0]]}),
            (0.1, {"logprobs": 2}),
            (0.1, {"logit_bias": {dice.randrange(300, 700): dice.choice([-100.0, 4.0]) for _ in range(20)}}),
            (0.1, {"repeat_penalty": 1.3, "dry_multiplier": 0.8}),
            (0.15, {"spec_type": dice.choice(["draft-simple,ngram-map-k", "ngram-simple"])}),
            (0.1, {"logits_processor": [bent]}),
            (0.1, {"stopping_criteria": [ends_at_30]}),
        ]
        for chance, given in more:
            if dice.random() < chance:
                options.update(given)
        if "json_schema" not in options and dice.random() < 0.1:
            options["grammar"] = YES_OR_NO
        found.append((prompt, options))
    return found


def same(a: Result, b: Result) -> bool:
    return a.tokens == b.tokens and a.text == b.text and a.finish_reason == b.finish_reason


def alone(d: Duo, asked: Sequence[Request]) -> list[Result]:
    """The plain twins of these texts. d: one text at a time."""
    return [d.generate(p, **{**o, "mode": "plain", "draft_tree": "auto"}) for p, o in asked]


def at_once(d: Duo, asked: Sequence[Request], n_threads: int) -> list[Result]:
    """The texts, from so many threads, each of which takes the next request."""
    got: dict[int, Result] = {}
    left = list(range(len(asked)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not left:
                    return
                i = left.pop(0)
            got[i] = d.generate(asked[i][0], **asked[i][1])

    threads = [threading.Thread(target=work) for _ in range(n_threads)]
    for t in threads:
        t.start()
    join(*threads)
    assert len(got) == len(asked), "a text failed in its thread"
    return [got[i] for i in range(len(asked))]


async def storm(d: Duo, n: int, n_tasks: int, seed: int, right: dict[str, tuple[int, ...]]) -> Counter[str]:
    """n greedy texts from so many tasks, which cancel at random; counts how they ended.

    right: the tokens of each prompt's text, so that whole texts and beginnings are compared.
    """
    ends: Counter[str] = Counter()
    dice = random.Random(seed)
    left = iter(range(n))
    length = max(map(len, right.values()))
    options: dict[str, Any] = {"max_tokens": length, "temperature": 0, "ignore_eos": True}

    async def whole(prompt: str) -> None:
        r = await d.agenerate(prompt, **options)
        assert r.tokens == right[prompt]
        ends["whole"] += 1

    async def cancelled(prompt: str) -> None:
        task = asyncio.create_task(d.agenerate(prompt, **options))
        await asyncio.sleep(dice.random() ** 2 * 0.05)
        task.cancel()
        try:
            r = await task
        except asyncio.CancelledError:
            ends["cancelled"] += 1
        else:
            assert r.tokens == right[prompt]
            ends["too late"] += 1

    async def left_early(prompt: str) -> None:
        stream = d.astream(prompt, **options)
        tokens: list[int] = []
        n_read = dice.randrange(1, length)
        async for chunk in stream:
            if chunk.token is not None:
                tokens.append(chunk.token)
            if len(tokens) == n_read:
                break
        await stream.aclose()  # type: ignore[attr-defined]  # a generator
        assert tuple(tokens) == right[prompt][:n_read]
        ends["left"] += 1

    async def gathered(prompt: str) -> None:
        both = asyncio.gather(*(d.agenerate(p, **options) for p in (prompt, PROMPTS[0])))
        if dice.random() < 0.5:
            assert [r.tokens for r in await both] == [right[prompt], right[PROMPTS[0]]]
            ends["gathered"] += 1
            return
        with suppress(asyncio.CancelledError, asyncio.TimeoutError):
            await asyncio.wait_for(both, dice.random() * 0.05)
        ends["gather cancelled"] += 1

    async def task() -> None:
        for _ in left:
            how = dice.choices((whole, cancelled, left_early, gathered), (4, 3, 2, 1))[0]
            await how(dice.choice(PROMPTS))

    await asyncio.gather(*(task() for _ in range(n_tasks)))
    return ends


def open_streams() -> int:
    """Texts that Python still holds."""
    gc.collect()
    return sum(isinstance(x, Stream) for x in gc.get_objects())
