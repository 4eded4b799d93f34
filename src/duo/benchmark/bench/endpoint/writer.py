"""Lets servers answer questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from duo.benchmark.bench.arms import Arm, arms_of
from duo.benchmark.bench.endpoint.client import EndpointClient, FinishedRequest
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.record import MeasuredAnswer, Served
from duo.errors import BadValueError

OF_DRAFT = ("draft_n", "draft_n_accepted")


def arms_on(client: EndpointClient, chosen: Sequence[Arm]) -> list[Arm]:
    """The arms of a server: of duo plain, those that were chosen, or the mode that it has; of others the latter."""
    name = client.address.name
    own = Arm(name, None, server=name)
    if not client.is_duo:
        return [own]
    modes = chosen or [*arms_of((), (), ()), own]
    return [a if a is own else Arm(f"{name} {a.name}", a.mode, a.n_draft, name) for a in modes]


class EndpointWriter:
    """fields: of every request, besides prompt, model and mode. limit_...: of goodput, in ms; None: there is none.

    count_chunks: if a server does not report the number of tokens, its pieces of text count.
    """

    def __init__(
        self,
        clients: Sequence[EndpointClient],
        fields: Mapping[str, Any],
        *,
        limit_ttft: float | None = None,
        limit_tpot: float | None = None,
        count_chunks: bool = False,
    ) -> None:
        self._clients = {c.address.name: c for c in clients}
        self._fields = fields
        self._limit_ttft, self._limit_tpot = limit_ttft, limit_tpot
        self._count_chunks = count_chunks
        self.notes: dict[str, None] = {}

    def clear(self, questions: Sequence[Question], n: int) -> None:
        """Nothing: a server with llama-server's fields is asked to use no cache, and others cannot be."""

    def answers(self, question: Question, arm: Arm) -> list[MeasuredAnswer]:
        """The answers to all turns, up to one that is refused. Several threads call this.

        Raises PeerLostError: a server fails; BadValueError: it does not take the request.
        """
        client = self._clients[arm.server]
        messages: list[dict[str, str]] = []
        prompt, answers = "", list[MeasuredAnswer]()
        for turn in question.turns:
            prompt += turn
            messages.append({"role": "user", "content": turn})
            body = {"messages": messages} if client.address.chat else {"prompt": prompt}
            request = client.ask({**body, **self._fields, **_of_arm(arm), **_of_llama_cpp(client)})
            answers.append(self._answer(client, request))
            if request.answer is None:
                break
            prompt += request.answer.text.replace("\0", "") + "\n"
            messages.append({"role": "assistant", "content": request.answer.text})
        return answers

    def _answer(self, client: EndpointClient, request: FinishedRequest) -> MeasuredAnswer:
        limits = self._limit_ttft, self._limit_tpot
        none_good = None if limits == (None, None) else False
        if request.answer is None:
            timings: dict[str, Any] = {"predicted_n": 0, "predicted_ms": 0.0}
            return MeasuredAnswer(
                (), (), timings, served=Served("", 0, request.status, None, request.whole_s * 1e3, none_good)
            )
        n = self._n_tokens(client, request)
        first, last = (None if s is None else s * 1e3 for s in (request.first_s, request.last_s))
        between = last - first if first is not None and last is not None else 0.0
        tpot = between / (n - 1) if n > 1 and first is not None else None
        pairs = zip((first, tpot), limits, strict=True)
        good = none_good if none_good is None else all(most is None or (t or 0.0) <= most for t, most in pairs)
        timings = {k: v for k, v in request.answer.timings.items() if k in OF_DRAFT}
        timings |= {"predicted_n": n, "predicted_ms": between, "ttft_ms": first}
        return MeasuredAnswer(
            (), (), timings, served=Served(request.answer.text, n, 200, tpot, request.whole_s * 1e3, good)
        )

    def _n_tokens(self, client: EndpointClient, request: FinishedRequest) -> int:
        answer, name = request.answer, client.address.name
        assert answer is not None
        if answer.usage_tokens is not None:
            return answer.usage_tokens
        if not self._count_chunks:
            raise BadValueError(
                f"the server {name} does not report the number of tokens (usage) of a stream; give --count-chunks, and "
                "its pieces of text count instead"
            )
        self.notes[f"{name} does not report the number of tokens: its pieces of text were counted"] = None
        return answer.n_chunks


def _of_arm(arm: Arm) -> dict[str, Any]:
    if arm.mode is None:
        return {}
    return {"mode": arm.mode, **({"draft": {"n_max": arm.n_draft}} if isinstance(arm.n_draft, int) else {})}


def _of_llama_cpp(client: EndpointClient) -> dict[str, Any]:
    """Otherwise only the first arm would evaluate a question."""
    return {"cache_prompt": False} if client.is_llama_cpp else {}
