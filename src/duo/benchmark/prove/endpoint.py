"""Asks a server with OpenAI's routes for texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from duo.benchmark.bench.endpoint.bad_answer import BadAnswerError
from duo.benchmark.bench.endpoint.client import EndpointClient
from duo.benchmark.prove.cases import How
from duo.benchmark.prove.form import CHOICE, N_TOKENS, NAME, SCHEMA, TOOL
from duo.benchmark.prove.message import Message, text_of_choice
from duo.benchmark.prove.plan import Item, Kind, ProofPlan
from duo.benchmark.prove.text import ProvedText, Step, TokenCandidate
from duo.errors import BadValueError, BusyError, PeerLostError
from duo.support.wording import one_line

N_CANDIDATES = 5  # OpenAI's limit of /v1/completions
# OpenAI's form of a schema, and the one of servers that know no other (llama-cpp-python's).
FORMATS: tuple[dict[str, Any], ...] = (
    {"type": "json_schema", "json_schema": {"name": NAME, "schema": SCHEMA, "strict": True}},
    {"type": "json_object", "schema": SCHEMA},
)


class ServerTextWriter:
    """Several threads may ask. Texts come from the route of the client's address, chats from /v1/chat/completions."""

    def __init__(self, client: EndpointClient, plan: ProofPlan) -> None:
        self._client, self._plan = client, plan
        self._chats = client.on(replace(client.address, chat=True))
        self._format, self._format_known = 0, False  # of FORMATS; whether the server has taken it

    def write(self, item: Item, how: How) -> ProvedText:
        """Raises PeerLostError: the server fails; BadValueError: it does not take the request; BusyError: it is
        full."""
        if item.kind == "schema":
            return self._json(item, how)
        if item.kind == "call":
            return self._chat(item, how, {"tools": [TOOL], "tool_choice": CHOICE})
        body = {**self._prompt_body(item), **self._plan.sampling(item), "max_tokens": self._plan.n_tokens}
        if how.streamed or item.cancel_after is not None:
            return self._streamed(body, item.cancel_after)
        choice = self._choice(self._client, body | (self._logprobs() if how.logprobs else {}))
        text = text_of_choice(choice).text if self._client.address.chat else choice.get("text")
        return ProvedText(text if isinstance(text, str) else "", steps=steps_of(choice.get("logprobs")))

    def _prompt_body(self, item: Item) -> dict[str, Any]:
        prompt = self._plan.prompt(item)
        return {"messages": [{"role": "user", "content": prompt}]} if self._client.address.chat else {"prompt": prompt}

    def _logprobs(self) -> dict[str, Any]:
        chat = self._client.address.chat
        return {"logprobs": True, "top_logprobs": N_CANDIDATES} if chat else {"logprobs": N_CANDIDATES}

    def _streamed(self, body: Mapping[str, Any], cancel_after: int | None) -> ProvedText:
        """cancel_after: the connection is closed after so many pieces of text."""
        request = self._client.ask(body, enough=lambda a: cancel_after is not None and a.n_chunks >= cancel_after)
        if request.answer is None:
            raise _busy(self._client)
        return ProvedText(request.answer.text)

    def _json(self, item: Item, how: How) -> ProvedText:
        """The first text settles the form: what fails later is a fault."""
        try:
            text = self._chat(item, how, {"response_format": FORMATS[self._format]})
        except BadAnswerError as e:
            if self._format_known or self._format or not e.lacks:
                raise
            text = self._chat(item, how, {"response_format": FORMATS[1]})
            self._format = 1
        self._format_known = True
        return text

    def _chat(self, item: Item, how: How, form: Mapping[str, Any]) -> ProvedText:
        body = {"messages": self._plan.messages(item), **self._plan.sampling(item), "max_tokens": N_TOKENS, **form}
        if not how.streamed:
            return text_of_choice(self._choice(self._chats, body))
        message = Message()
        request = self._chats.ask(body, on_choice=message.add)
        if request.answer is None:
            raise _busy(self._client)
        return message.text

    @staticmethod
    def _choice(client: EndpointClient, body: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = client.ask_whole(body)
        if answer is None:
            raise _busy(client)
        try:
            choice: Mapping[str, Any] = answer["choices"][0]
            choice.get("text")
        except (KeyError, IndexError, TypeError, AttributeError):
            raise PeerLostError(
                f"the server {client.address.name} sent an answer without choices; see its log"
            ) from None
        return choice


def _busy(client: EndpointClient) -> BusyError:
    return BusyError(f"the server {client.address.name} has no room for a text (status 429 or 503); wait until it has")


def add_candidates(writer: ServerTextWriter, items: Sequence[Item], texts: dict[tuple[Kind, int], ProvedText]) -> str:
    """Adds the log-probabilities of each token to the texts, from a second request that asks for them: the first one is
    a user's. Returns why there are none; empty: there are. Raises PeerLostError."""
    for item in items:
        try:
            text = writer.write(item, How(logprobs=True))
        except (BadValueError, BusyError) as e:
            if isinstance(e, BadAnswerError) and not e.lacks:
                continue  # it failed; the case with log-probabilities counts that
            return one_line(e, 300)
        if not text.steps:
            return "its answers have none"
        texts[item.key] = replace(texts[item.key], steps=text.steps)
    return ""


def steps_of(logprobs: Any) -> tuple[Step, ...]:
    """OpenAI's logprobs: lists side by side (completions), or a list of objects (chats; llama-server's completions).
    Empty: there are none, or they have another shape."""
    try:
        if logprobs and isinstance(logprobs.get("content"), list):
            return tuple(
                Step(
                    TokenCandidate(x["token"], float(x["logprob"])),
                    _candidates((t["token"], t["logprob"]) for t in x["top_logprobs"]),
                )
                for x in logprobs["content"]
            )
        columns = [logprobs[name] for name in ("tokens", "token_logprobs", "top_logprobs")] if logprobs else []
        return tuple(
            Step(TokenCandidate(piece, float(logprob)), _candidates((among or {}).items()))
            for piece, logprob, among in zip(*columns, strict=False)
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return ()


def _candidates(candidates: Iterable[tuple[str, Any]]) -> tuple[TokenCandidate, ...]:
    return tuple(TokenCandidate(piece, float(logprob)) for piece, logprob in candidates)
