"""Sends requests to one server, and says in one sentence what is wrong with it."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import httpx2

from duo.benchmark.bench.endpoint.address import EndpointAddress
from duo.benchmark.bench.endpoint.answer import BadStream, StreamedAnswer, message_of
from duo.benchmark.bench.endpoint.bad_answer import BadAnswerError
from duo.benchmark.bench.endpoint.events import EventReader
from duo.errors import BadValueError, PeerLostError
from duo.support.wording import one_line, quoted

REFUSED = (429, 503)
KEY_VARIABLE = "DUO_API_KEY"
# Servers that take llama-server's fields, as they call themselves in the list of models.
OF_DUO, OF_LLAMA_CPP = "duo", ("duo", "llamacpp")


def read_key(file: str | None) -> str | None:
    """The key in the first line of a file, else of the environment. Raises BadValueError, which never shows the key."""
    where = f"the environment variable {KEY_VARIABLE}"
    line = os.environ.get(KEY_VARIABLE)
    if file is not None:
        where = f"the key file {file} (--api-key-file)"
        try:
            lines = Path(file).read_text("utf-8").split("\n")
        except (OSError, ValueError) as e:
            why = getattr(e, "strerror", None) or "it is not UTF-8"
            raise BadValueError(f"{where} cannot be read ({why}); check the path") from None
        line = lines[0]
    if line is None:
        return None
    key = line.strip()
    if not key or not all("!" <= c <= "~" for c in key):
        raise BadValueError(f"{where} holds no key; write one word of ASCII characters")
    return key


@dataclass(frozen=True)
class FinishedRequest:
    """A request that was answered or refused. Times are seconds from sending."""

    answer: StreamedAnswer | None  # None: refused
    status: int
    first_s: float | None = None
    last_s: float | None = None
    whole_s: float = 0.0


class EndpointClient:
    """One server. Threads may share it. model, owner: what the server says of itself, or the user of it."""

    def __init__(self, address: EndpointAddress, key: str | None, timeout_s: float, model: str | None = None) -> None:
        self.address, self._key = address, key
        self._http = httpx2.Client(
            headers={"Accept-Encoding": "identity", **({"Authorization": f"Bearer {key}"} if key else {})},
            timeout=timeout_s,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            trust_env=not address.is_here,  # a proxy would hold back the stream
        )
        self._timeout_s = timeout_s
        self.model, self.owner = model, ""

    def close(self) -> None:
        self._http.close()

    @property
    def is_duo(self) -> bool:
        """Whether a request may choose the mode."""
        return self.owner == OF_DUO

    @property
    def is_llama_cpp(self) -> bool:
        """Whether a request may ask for no cache."""
        return self.owner in OF_LLAMA_CPP

    def meet(self) -> None:
        """Asks which model there is. Raises PeerLostError: no server answers; BadValueError: it wants a key or a
        model's name."""
        with self._failures():
            response = self._http.get(f"{self.address.base}/models")
        if response.status_code != 200:
            if self.model is not None and response.status_code in (404, 405, 501):
                return  # it has no list
            self._bad_status(response.status_code, response.content)
        try:
            models = [m for m in response.json()["data"] if isinstance(m["id"], str)]
        except (ValueError, KeyError, TypeError, RecursionError):
            self._fail("does not list its models as OpenAI's API does; check the URL")
        matches = [m for m in models if self.model in (None, m["id"], *(m.get("aliases") or ()))]
        if not matches and self.model is None:
            self._fail("lists no model; name one with --url-model")
        if matches:
            self.model = self.model or matches[0]["id"]
            self.owner = str(matches[0].get("owned_by"))

    def on(self, address: EndpointAddress) -> EndpointClient:
        """The same client, with the same connections, for another route."""
        other = copy.copy(self)
        other.address = address
        return other

    def ask_whole(self, body: Mapping[str, Any]) -> Any:
        """The JSON of a text that is not streamed; None: refused. Raises as `ask`."""
        with self._failures():
            response = self._http.post(self.address.url, json={**body, "model": self.model, "stream": False})
        if response.status_code in REFUSED:
            return None
        if response.status_code != 200:
            self._bad_status(response.status_code, response.content)
        try:
            return response.json()
        except (ValueError, RecursionError):
            self._fail("sent an answer that is not JSON; check the URL")

    def ask(
        self,
        body: Mapping[str, Any],
        *,
        on_choice: Callable[[Mapping[str, Any]], None] | None = None,
        enough: Callable[[StreamedAnswer], bool] = lambda _answer: False,
    ) -> FinishedRequest:
        """One streamed text. on_choice: see StreamedAnswer. enough: whether to close the connection before the end.

        Raises PeerLostError: the server fails; BadValueError: it does not take the request.
        """
        sent = {**body, "model": self.model, "stream": True, "stream_options": {"include_usage": True}}
        answer, events = StreamedAnswer(on_choice), EventReader()
        begin = time.perf_counter()
        with self._failures(answer), self._http.stream("POST", self.address.url, json=sent) as response:
            if response.status_code in REFUSED:
                response.read()
                return FinishedRequest(None, response.status_code, whole_s=time.perf_counter() - begin)
            if response.status_code != 200:
                self._bad_status(response.status_code, response.read())
            kind = response.headers.get("content-type", "")
            if not kind.startswith("text/event-stream"):
                self._fail(f"does not stream (its answer is {quoted(kind, 60)}, not text/event-stream); check the URL")
            for piece in response.iter_bytes():
                now = time.perf_counter()
                try:
                    for name, data in events.feed(piece):
                        answer.take(name, data, now)
                except ValueError as e:
                    raise BadStream(f"sent what is no stream of events ({one_line(e, 100)})") from None
                if enough(answer):
                    break
        duration_s = time.perf_counter() - begin
        if not (answer.is_whole or enough(answer)):
            raise PeerLostError(f"{self._who} ended a text in the middle; see its log{come_of(answer)}")
        first, last = (None if t is None else t - begin for t in (answer.first_at, answer.last_at))
        return FinishedRequest(answer, 200, first, last, duration_s)

    @property
    def _who(self) -> str:
        return f"the server {self.address.name} ({self.address.base})"

    def _fail(self, what: str, status: int = 200) -> NoReturn:
        raise BadAnswerError(f"{self._who} {self._without_key(what)}", status)

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text  # some servers repeat it

    def _bad_status(self, status: int, body: bytes) -> NoReturn:
        if status in (401, 403):
            self._fail(f"wants another key (status {status}); give it with --api-key-file", status)
        if status in REFUSED:
            self._fail(f"is not ready (status {status}); wait until it is", status)
        try:
            reason = message_of(httpx2.Response(status, content=body).json())
        except (ValueError, RecursionError):
            reason = quoted(body[:200].decode("utf-8", "replace"))
        self._fail(f"answers with status {status}: {reason}", status)

    @contextmanager
    def _failures(self, answer: StreamedAnswer | None = None) -> Iterator[None]:
        """Names the server in what goes wrong, as PeerLostError. answer: the text that is being read."""

        def lost(what: str) -> PeerLostError:
            return PeerLostError(f"{self._who} {self._without_key(what)}{come_of(answer)}")

        try:
            yield
        except httpx2.ConnectError as e:
            raise lost(f"cannot be reached ({one_line(e, 200)}); check that it runs") from None
        except httpx2.TimeoutException:
            raise lost(f"was silent for {self._timeout_s:g} s (--timeout)") from None
        except httpx2.HTTPError as e:
            raise lost(f"broke off ({one_line(e, 200)}); see its log") from None
        except BadStream as e:
            raise lost(str(e)) from None


def come_of(answer: StreamedAnswer | None) -> str:
    return f"; {len(answer.text)} characters of the text had come" if answer is not None and answer.text else ""
