"""The asyncio twins: the loop runs on, tasks may be cancelled, and the texts are the same."""

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from conftest import HANG_S

from duo import Duo, DuoError
from duo.generation.begin import checked
from duo.generation.stream_async import open_async
from duo.generation.turns import Turn

PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 40}
ENDLESS: dict[str, Any] = {"ignore_eos": True, "max_tokens": -1}


def test_the_event_loop_runs_on_while_the_models_work() -> None:
    """The target waits at each token until the loop has run: a loop that stood still would wait for the target."""
    inside, ran = threading.Event(), threading.Event()

    def wait_for_the_loop(_ids: Any, _scores: Any) -> bool:
        ran.clear()
        inside.set()
        assert ran.wait(HANG_S)
        return False

    async def main(d: Duo) -> None:
        async def tick() -> None:
            while True:
                if inside.is_set():
                    inside.clear()
                    ran.set()
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        waits: dict[str, Any] = {"max_tokens": 20, "ignore_eos": True, "stopping_criteria": wait_for_the_loop}
        r = await d.agenerate(PROMPT, **waits)
        assert len(r.tokens) == 20
        chunks = [c async for c in d.astream(PROMPT, **waits)]
        assert chunks[-1].finish_reason
        ticking.cancel()

    with Duo(n_ctx=256) as d:
        asyncio.run(main(d))


def test_asyncio_twins_give_the_same_texts(strict_pair: Duo) -> None:
    right = strict_pair.generate(PROMPT, **GREEDY)

    async def main() -> None:
        assert (await strict_pair.agenerate(PROMPT, **GREEDY)).tokens == right.tokens
        assert "".join([c.text async for c in strict_pair.astream(PROMPT, **GREEDY)]) == right.text
        # More at once than the loop's pool has threads.
        short = {**GREEDY, "max_tokens": 8}
        many = await asyncio.gather(*(strict_pair.agenerate(PROMPT, **short) for _ in range(40)))
        assert {r.tokens for r in many} == {right.tokens[:8]}
        for bad in ({"temprature": 1}, {"n_ctx": 5}):
            with pytest.raises(TypeError, match=r"agenerate\(\) got an unexpected keyword"):
                await strict_pair.agenerate(PROMPT, **bad)
        with pytest.raises(DuoError, match="empty"):
            await strict_pair.agenerate("")

    asyncio.run(main())


def test_a_cancelled_task_frees_its_slot(strict_pair: Duo) -> None:
    right = strict_pair.generate(PROMPT, **GREEDY).tokens

    async def read(started: asyncio.Event) -> None:
        async for _ in strict_pair.astream(PROMPT, **ENDLESS):
            started.set()

    async def main() -> None:
        started = asyncio.Event()
        reading = asyncio.create_task(read(started))
        await started.wait()
        waiting = asyncio.create_task(strict_pair.agenerate(PROMPT, **GREEDY))
        also_waiting = asyncio.create_task(strict_pair.agenerate(PROMPT, **ENDLESS))
        await asyncio.sleep(0.01)
        for task in (also_waiting, reading):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await waiting).tokens == right
        writing = asyncio.create_task(strict_pair.agenerate(PROMPT, **ENDLESS))
        while not strict_pair.session.turns.owners:
            await asyncio.sleep(0)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(writing, 0.001)
        async for _ in strict_pair.astream(PROMPT, **ENDLESS):
            with pytest.raises(DuoError, match="this thread has another stream open"):
                strict_pair.generate(PROMPT)  # it would wait for this very loop
            break
        assert (await strict_pair.agenerate(PROMPT, **GREEDY)).tokens == right

    asyncio.run(asyncio.wait_for(main(), HANG_S))
    assert strict_pair.generate(PROMPT, **GREEDY).tokens == right


def test_tasks_that_wait_for_their_turn_do_nothing_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of them that looked around four times a second each would leave the loop no time."""
    monkeypatch.setattr("duo.generation.stream_async.LOOK_S", 0.001)
    n_looks = 0

    async def main(d: Duo) -> None:
        held = d.session.turns.ask()  # somebody else's text
        tasks = [asyncio.create_task(d.agenerate(PROMPT, max_tokens=1)) for _ in range(20)]
        while len(asked) < 1 + len(tasks):
            await asyncio.sleep(0.001)
        for _ in range(50):  # time for 50 looks of each
            await asyncio.sleep(0.002)
        assert not any(t.done() for t in tasks)
        d.session.turns.end(held)
        assert all(len(r.tokens) == 1 for r in await asyncio.gather(*tasks))

    with Duo(n_ctx=256) as d:
        asked: list[Turn] = []
        ask, check = d.session.turns.ask, d.session.turns.check

        def counted_ask(turn: Turn | None = None, **more: Any) -> Turn:
            asked.append(ask(turn, **more))
            return asked[-1]

        def counted_check(*args: Any) -> None:
            nonlocal n_looks
            n_looks += 1
            check(*args)

        monkeypatch.setattr(d.session.turns, "ask", counted_ask)
        monkeypatch.setattr(d.session.turns, "check", counted_check)
        asyncio.run(main(d))
    assert n_looks <= len(asked)


def test_a_stream_that_is_left_while_its_text_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text has ended, and its turn has not: another thread is still at it. Found by benchmarks/torture."""

    async def main(d: Duo) -> None:
        stream = d.astream(PROMPT, **GREEDY, ignore_eos=True)
        await stream.__anext__()
        assert await asyncio.to_thread(ending.wait, HANG_S)
        await stream.aclose()
        assert d.session.turns.owners == []

    with Duo(n_ctx=256) as d:
        ending, end = threading.Event(), d.session.turns.end

        def slow(turn: Turn) -> None:
            ending.set()
            time.sleep(0.3)
            end(turn)

        monkeypatch.setattr(d.session.turns, "end", slow)
        asyncio.run(main(d))
        d.generate(PROMPT, max_tokens=2)


def test_who_reads_a_text_that_is_stopped_learns_its_end(strict_pair: Duo) -> None:
    async def main() -> None:
        came: asyncio.Queue[Any] = asyncio.Queue()
        job = checked(strict_pair.session, PROMPT, ENDLESS, "astream")
        text = await open_async(strict_pair.session, job, came.put_nowait)
        try:
            assert await asyncio.wait_for(came.get(), HANG_S)
            text.stop()
            while await asyncio.wait_for(came.get(), HANG_S):
                pass
        finally:
            await text.close()
        assert came.empty(), "the end is told once"

    asyncio.run(main())
