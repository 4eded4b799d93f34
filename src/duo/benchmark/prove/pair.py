"""Writes texts with a loaded pair."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import aclosing, nullcontext
from itertools import cycle
from typing import Any

from duo.benchmark.prove.cases import LENGTHS, How
from duo.benchmark.prove.form import CHOICE, N_TOKENS, SCHEMA, TOOL
from duo.benchmark.prove.message import Message, text_of_choice
from duo.benchmark.prove.plan import CHATS, Item, ProofPlan
from duo.benchmark.prove.text import ProvedText, Step, TokenCandidate
from duo.generation.result import Result, TokenLogprobs
from duo.model import Duo

N_CANDIDATES = 20  # of each token of a reference
N_TEMPLATE = 256  # tokens that a chat template may add, at most
OF_CHAT: dict[str, dict[str, Any]] = {
    "call": {"tools": [TOOL], "tool_choice": CHOICE},
    "schema": {"response_format": {"type": "json_object", "schema": SCHEMA}},
}


class PairWriter:
    """Several threads may write, as many texts at once as the Duo was loaded for."""

    def __init__(self, duo: Duo, plan: ProofPlan) -> None:
        self._duo, self._plan = duo, plan
        self._lengths = cycle(LENGTHS)

    def write(self, item: Item, how: How) -> ProvedText:
        """Raises DuoError."""
        options = {**self._plan.sampling(item), "mode": how.mode, **how.options}
        if how.mode != "plain" and how.always:
            options["n_draft"] = next(self._lengths)
        with self._duo.session.speculating_always() if how.always else nullcontext():
            if item.kind in CHATS:
                return self._chat(item, how, options)
            options["max_tokens"] = self._plan.n_tokens
            if how.halved:
                return self._halved(item, options)
            if how.streamed:
                return asyncio.run(self._streamed(item, options))
            return self._unstreamed(item, how, options)

    def _unstreamed(self, item: Item, how: How, options: dict[str, Any]) -> ProvedText:
        if how.logprobs and item.kind != "sampled":
            options["logprobs"] = min(N_CANDIDATES, self._duo.local_model.n_vocab)
        with self._duo.stream(self._plan.prompt(item), **options) as s:
            for n, _ in enumerate(s, 1):
                if n == item.cancel_after:
                    break
        return self._text(s.result)

    async def _streamed(self, item: Item, options: dict[str, Any]) -> ProvedText:
        """In an event loop, by its chunks."""
        pieces, tokens = list[str](), list[int]()
        async with aclosing(self._duo.astream(self._plan.prompt(item), **options)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                pieces.append(chunk.text)
                tokens += [] if chunk.token is None else [chunk.token]
                if len(tokens) == item.cancel_after:
                    break
        return ProvedText("".join(pieces), tuple(tokens))

    def _halved(self, item: Item, options: dict[str, Any]) -> ProvedText:
        """The second half goes on from a state that was saved before another text took the caches."""
        d, n = self._duo, max(1, self._plan.n_tokens // 2)
        prompt = d.tokenize(self._plan.prompt(item), special=True)
        first = d.generate(prompt, **{**options, "max_tokens": n})
        left = self._plan.n_tokens - n
        if first.finish_reason != "length" or left == 0:
            return ProvedText(None, first.tokens)
        state = d.save_state()
        d.generate(self._plan.prompts[(item.i + 1) % len(self._plan.prompts)], **{**options, "max_tokens": n})
        d.load_state(state)
        second = d.generate([*prompt, *first.tokens], **{**options, "max_tokens": left})
        return ProvedText(
            None,
            first.tokens + second.tokens,
            warning=second.warning,
            n_drafted=second.timings.get("draft_n", 0),
            n_accepted=second.timings.get("draft_n_accepted", 0),
        )

    def _chat(self, item: Item, how: How, options: dict[str, Any]) -> ProvedText:
        options |= {**OF_CHAT[item.kind], "max_tokens": N_TOKENS}
        messages = self._plan.messages(item)
        if how.streamed:
            chunks = self._duo.create_chat_completion(messages, stream=True, **options)
            message = Message()
            for c in chunks:
                message.add(c["choices"][0])
            return message.text
        answer = self._duo.create_chat_completion(messages, stream=False, **options)
        return text_of_choice(answer["choices"][0])

    def _text(self, r: Result) -> ProvedText:
        return ProvedText(
            r.text,
            r.tokens,
            tuple(self._step(x) for x in r.logprobs),
            warning=r.warning,
            n_drafted=r.timings.get("draft_n", 0),
            n_accepted=r.timings.get("draft_n_accepted", 0),
        )

    def _step(self, row: TokenLogprobs) -> Step:
        return Step(self._candidate(row.token, row.logprob), tuple(self._candidate(*x) for x in row.top))

    def _candidate(self, token: int, logprob: float) -> TokenCandidate:
        return TokenCandidate(
            self._duo.decode([token], special=True), logprob, token, self._duo.local_model.is_end(token)
        )


def n_context(duo: Duo, plan: ProofPlan, items: Iterable[Item]) -> int:
    """The tokens of the longest of these prompts, with its text. duo: may have its vocabulary only."""

    def n(item: Item) -> int:
        if item.kind not in CHATS:
            return len(duo.tokenize(plan.prompt(item), special=True)) + plan.n_tokens
        words = plan.messages(item)[0]["content"] + json.dumps(TOOL)
        return len(duo.tokenize(words)) + N_TEMPLATE + N_TOKENS

    return max(map(n, items))
