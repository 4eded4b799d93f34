"""`duo serve`: echo with logprobs, which programs that evaluate models use to have a prompt scored."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from conftest import HANG_S
from served import ENDLESS, PROMPT, Server, narrow, raw, request_for
from waits import wait_until

from duo import Duo, DuoError, TokenLogprobs, _core
from duo.compat.openai.logprobs import LogprobLists
from duo.generation import errand_async
from duo.generation.errand import check_scores
from duo.generation.errand_async import score_async
from duo.generation.session import EngineSession
from duo.server import build_jobs as making

SCORED: dict[str, Any] = {"echo": True, "logprobs": 2, "temperature": 0}
PROMPTS = (PROMPT, "The king said \u00e9 \U0001f438 so", "There was")
LISTS = ("tokens", "text_offset", "token_logprobs", "top_logprobs")


def lists_of(answer: Any) -> list[dict[str, Any]]:
    return [{name: c["logprobs"][name] for name in LISTS} for c in answer["choices"]]


def same(found: dict[str, Any], right: dict[str, Any]) -> None:
    """Rows of one pass and of another one may differ in rounding, where kernels are not duo's."""
    for name in ("tokens", "text_offset"):
        assert found[name] == right[name]
    assert found["token_logprobs"] == pytest.approx(right["token_logprobs"], abs=1e-3)
    for mine, theirs in zip(found["top_logprobs"], right["top_logprobs"], strict=True):
        assert mine == (theirs and pytest.approx(theirs, abs=1e-3))


def test_the_answer_is_that_of_the_python_api(server: Server, alone: Duo) -> None:
    for prompt in (*PROMPTS, alone.tokenize(PROMPT, add_bos=False)):
        right = alone.create_completion(prompt, max_tokens=4, **SCORED)["choices"][0]
        (choice,) = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 4, **SCORED}).json()["choices"]
        assert choice["text"] == right["text"]
        same(choice["logprobs"], right["logprobs"])
        assert len(choice["logprobs"]["content"]) == 4  # of what was written
    found = server.post("/v1/completions", {"prompt": [*PROMPTS], "max_tokens": 4, "n": 2, **SCORED}).json()
    for i, (choice, mine) in enumerate(zip(found["choices"], lists_of(found), strict=True)):
        right = alone.create_completion(PROMPTS[i // 2], max_tokens=4, **SCORED)["choices"][0]
        assert choice["index"] == i and choice["text"] == right["text"]
        same(mine, right["logprobs"])


def test_a_prompt_is_scored_and_nothing_is_written(server: Server, alone: Duo) -> None:
    found = server.post("/v1/completions", {"prompt": [*PROMPTS], "max_tokens": 0, **SCORED}).json()
    assert found["usage"]["completion_tokens"] == 0
    for prompt, choice, mine in zip(PROMPTS, found["choices"], lists_of(found), strict=True):
        ids = alone.tokenize(prompt, add_bos=False)
        right = alone.create_completion(prompt, max_tokens=1, **SCORED)["choices"][0]["logprobs"]
        same(mine, {name: right[name][: len(ids)] for name in LISTS})
        assert choice["text"] == prompt and choice["finish_reason"] == "length"
        assert mine["token_logprobs"][0] is None is mine["top_logprobs"][0]
        assert all(p < 0 for p in mine["token_logprobs"][1:])
        ends = [*mine["text_offset"][1:], len(prompt)]
        whole = [n for n, t in enumerate(mine["tokens"]) if len(t) == ends[n] - mine["text_offset"][n]]
        assert all(prompt[mine["text_offset"][n] : ends[n]] == mine["tokens"][n] for n in whole) and len(whole) > 1


def test_each_token_id_has_a_row(server: Server, alone: Duo) -> None:
    """lm-evaluation-harness counts rows by the ids that it sent, a BOS token among them."""
    ids = [alone.token_bos(), *alone.tokenize(PROMPT, add_bos=False)]
    (mine,) = lists_of(server.post("/v1/completions", {"prompt": ids, "max_tokens": 1, **SCORED}).json())
    assert len(mine["token_logprobs"]) == len(ids) + 1 and mine["token_logprobs"][0] is None
    (by_text,) = lists_of(server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1, **SCORED}).json())
    assert mine["tokens"][1:] == by_text["tokens"] and mine["text_offset"][1:] == by_text["text_offset"]
    assert mine["token_logprobs"][2:] == pytest.approx(by_text["token_logprobs"][1:], abs=1e-3)


def test_a_stream_begins_with_the_prompts_rows(server: Server) -> None:
    for n in (3, 0):
        asked = {"prompt": PROMPT, "max_tokens": n, **SCORED}
        (right,) = lists_of(server.post("/v1/completions", asked).json())
        events = [e for _, e in server.events("/v1/completions", asked)[:-1]]
        rows = [e["choices"][0]["logprobs"] for e in events if e["choices"] and e["choices"][0]["logprobs"]]
        joined = {name: [x for row in rows for x in row[name]] for name in LISTS}
        same(joined, right)
        assert events[0]["choices"][0]["text"] == PROMPT and rows[0]["text_offset"][0] == 0


def test_the_end_token_has_a_row_behind_a_scored_prompt(server: Server, alone: Duo) -> None:
    """lm-evaluation-harness leaves out the last row, which is of the one token that it asked for, whichever that is."""
    ids = alone.tokenize(PROMPT, add_bos=False)
    asked = {"prompt": ids, "max_tokens": 1, "logit_bias": [[alone.token_eos(), 1000]], **SCORED}
    whole = server.post("/v1/completions", asked).json()
    (mine,) = lists_of(whole)
    assert whole["choices"][0]["text"] == PROMPT and whole["choices"][0]["finish_reason"] == "stop"
    assert {len(mine[name]) for name in LISTS} == {len(ids) + 1}
    assert whole["choices"][0]["logprobs"]["content"] == []  # llama-server's list has none of it
    events = [e for _, e in server.events("/v1/completions", asked)[:-1]]
    rows = [e["choices"][0]["logprobs"] for e in events if e["choices"] and e["choices"][0]["logprobs"]]
    same({name: [x for row in rows for x in row[name]] for name in LISTS}, mine)
    unscored = server.post("/v1/completions", {**asked, "echo": False}).json()["choices"][0]
    assert unscored["logprobs"] is None and unscored["finish_reason"] == "stop"


def test_parts_of_a_character_share_a_key_which_has_the_best_value(alone: Duo) -> None:
    model = alone.local_model
    parts = [i for i in range(model.n_vocab) if model.piece(i) and not model.piece(i).decode(errors="ignore")]
    best, other, third = parts[:3]
    (top,) = LogprobLists(model).of([TokenLogprobs(third, -3.0, ((best, -0.5), (other, -2.0)))])["top_logprobs"]
    assert top == {"": -0.5}  # so that evaluators see that the token is not the best one


def test_what_cannot_be_scored(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "N_SCORES", 20)
    body = {"prompt": [PROMPT, PROMPT], "max_tokens": 0, **SCORED}
    answer = server.post("/v1/completions", body)
    assert answer.status_code == 400 and "ask for at most 20" in answer.json()["error"]["message"]
    assert server.post("/v1/completions", {**body, "logprobs": 101}).status_code == 400
    assert server.post("/v1/completions", {**body, "echo": False}).status_code == 200
    long = server.post("/v1/completions", {"prompt": [5] * 3000, "max_tokens": 0, **SCORED})
    assert long.status_code == 400 and "context" in long.json()["error"]["message"]


def test_a_target_elsewhere_scores_nothing() -> None:
    engine = _core.Engine(_core.SyntheticOptions())  # its models have no file, and are no models of this process
    try:
        assert engine.target is None
        with pytest.raises(ValueError, match="need the target in this process"):
            check_scores(EngineSession(engine), [1])
    finally:
        engine.close()


def test_an_error_behind_a_cancel_is_not_reported_as_lost(alone: Duo, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def failing(*_: Any, stopped: Callable[[], bool], **__: Any) -> None:
        begun.set()
        wait_until(stopped)
        raise DuoError("the device is gone")

    async def lost() -> list[Any]:
        said: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: said.append(context))
        task = asyncio.create_task(score_async(alone.session, [5, 6], 0))
        assert await asyncio.to_thread(begun.wait, HANG_S)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        del task
        gc.collect()  # a future that nobody has read says so when it goes
        return said

    monkeypatch.setattr(errand_async, "scored", failing)
    assert asyncio.run(lost()) == []


def test_scoring_waits_for_its_turn_and_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled: list[object] = []
    cancel = EngineSession.cancel
    monkeypatch.setattr(EngineSession, "cancel", lambda session, text: (cancelled.append(text), cancel(session, text)))
    with narrow() as server:
        writer = raw(server, request_for("/completion", ENDLESS))
        server.wait_for_texts(1)
        client = raw(server, request_for("/v1/completions", {"prompt": PROMPT, "max_tokens": 0, **SCORED}))
        server.wait_for_writings(2)
        assert server.get("/health").status_code == 200  # the loop is free meanwhile
        assert len(server.service.running) == 1
        client.close()  # while it waits
        wait_until(lambda: len(server.service.writings) == 1)
        client = raw(server, request_for("/v1/completions", {"prompt": [7] * 3900, "max_tokens": 0, **SCORED}))
        server.wait_for_writings(2)
        writer.close()  # now it is its turn; its passes are slow
        wait_until(lambda: len(server.service.writings) == 1 and not server.service.running)
        client.close()
        server.wait_until_idle()
        assert len(cancelled) == 2  # the writer's text, and the scoring
        found = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1, **SCORED}).json()
        assert len(found["choices"][0]["logprobs"]["tokens"]) > 2
