"""Moments in which two things happen at once, made wide enough to be hit every time."""

import asyncio
import threading
import time

import pytest
from conftest import HANG_S

from duo import Duo, DuoError, Stream
from duo.generation import begin
from duo.generation.trace_writer import TraceWriter
from duo.generation.turns import Turn
from duo.gguf_tools.switched_duo import SwitchedDuo

PROMPT = "Once upon a time"


def test_close_while_the_last_chunk_is_taken_gives_the_turn_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    finishing, finish = threading.Event(), Stream._finish

    def slow_finish(self: Stream, reason: str) -> str:
        finishing.set()
        time.sleep(0.2)
        return finish(self, reason)

    with Duo(n_ctx=256) as d:
        monkeypatch.setattr(Stream, "_finish", slow_finish)
        s = d.stream(PROMPT, max_tokens=4, temperature=0)
        reader = threading.Thread(target=lambda: list(s))
        reader.start()
        assert finishing.wait(HANG_S)
        s.close()
        reader.join(HANG_S)
        turns = d.session.turns
        turn, other = turns.ask(), turns.ask()
        assert turn.granted and not other.granted, "the turn was given back twice"
        turns.end(other)
        turns.end(turn)
        assert s.result.finish_reason in ("length", "cancelled")
        assert len(d.generate(PROMPT, max_tokens=4).tokens) == 4


def test_ctrl_c_just_after_the_engine_began_leaves_the_duo_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    with Duo(n_ctx=256) as d:
        with monkeypatch.context() as m:

            def interrupted(*_args: object, **_kwargs: object) -> None:
                raise KeyboardInterrupt

            m.setattr(begin, "Stream", interrupted)
            with pytest.raises(KeyboardInterrupt):
                d.stream(PROMPT)
        assert len(d.generate(PROMPT, max_tokens=4).tokens) == 4


def test_a_text_inside_a_text_of_the_same_task_is_an_error_and_not_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duo.generation.stream_async.ABANDONED_S", 1.0)

    async def nested(d: Duo) -> int:
        async for _ in d.astream(PROMPT, ignore_eos=True):
            with pytest.raises(DuoError, match="another stream open"):
                await d.agenerate(PROMPT, max_tokens=2)
            break
        # One that soon ends by itself is waited for.
        async for _ in d.astream(PROMPT, max_tokens=2, ignore_eos=True):
            return len((await d.agenerate(PROMPT, max_tokens=2, ignore_eos=True)).tokens)
        return 0

    async def after_a_sync_stream(d: Duo) -> None:
        with d.stream(PROMPT, ignore_eos=True) as s:
            next(s)
            with pytest.raises(DuoError, match="another stream open"):
                await d.agenerate(PROMPT, max_tokens=2)

    with SwitchedDuo(n_ctx=256, delay=(40_000, 1)) as d:  # some seconds for a text without an end
        assert asyncio.run(asyncio.wait_for(nested(d), 60)) == 2
        asyncio.run(asyncio.wait_for(after_a_sync_stream(d), 60))
        assert len(d.generate(PROMPT, max_tokens=4).tokens) == 4


def test_a_trace_that_cannot_be_written_does_not_cost_the_text(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Duo(n_ctx=256, trace=f"{tmp_path}/t.json") as d:

        def full(_writer: object, _events: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(TraceWriter, "add", full)
        r = d.generate(PROMPT, max_tokens=100, ignore_eos=True)
        assert len(r.tokens) == 100
        assert "No space left" in r.warning


def test_ctrl_c_just_when_a_turn_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two instructions, when nobody holds the turn yet. Found by benchmarks/torture: the next text hung."""
    with Duo(n_ctx=256) as d:
        wait = d.session.turns.wait

        def interrupted(turn: Turn) -> Turn:
            wait(turn)
            raise KeyboardInterrupt

        for call in (lambda: d.generate("a", max_tokens=2), d.save_state):
            monkeypatch.setattr(d.session.turns, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                call()
            monkeypatch.setattr(d.session.turns, "wait", wait)
            written = threading.Thread(target=d.generate, args=("a",), kwargs={"max_tokens": 2}, daemon=True)
            written.start()
            written.join(HANG_S)
            assert not written.is_alive()
