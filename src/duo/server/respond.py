"""One request for texts, from its admission to its answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from duo.server.json_text import N_AT_ONCE, dumped
from duo.server.progress import LOOK_S, Progress
from duo.server.prompt_files import keep_prompts
from duo.server.response_stream import Writing
from duo.server.sse import Events, first_of, forget

if TYPE_CHECKING:
    from duo.server.admission import Ticket
    from duo.server.formats.shape import AnswerFormat
    from duo.server.response_stream import Batch
    from duo.server.schemas import TextFields
    from duo.server.service import Service
    from duo.server.text import ServedText

log = logging.getLogger("duo.server")

DAY_S = 86400.0
CLIENT_GONE = 499  # nginx's number; nobody reads it


class Json(Response):
    """A dict as an answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumped(content)


async def respond(
    service: Service,
    request: Request,
    f: TextFields,
    n_texts: int,
    make: Callable[[], tuple[list[ServedText], AnswerFormat]],
) -> Response:
    """make: checks the request and makes its texts, in a thread. Raises ApiError and DuoError."""
    ticket = service.enter(n_texts)
    work = asyncio.create_task(_answer(service, f, ticket, make))
    if not await first_of(work, request.receive):
        ticket.leave()
        return Response(status_code=CLIENT_GONE)
    try:
        return work.result()
    except BaseException:
        ticket.leave()
        raise


async def _answer(
    service: Service, f: TextFields, ticket: Ticket, make: Callable[[], tuple[list[ServedText], AnswerFormat]]
) -> Response:
    texts, shape = await service.in_thread(make, fields=f)
    if (folder := service.settings.prompt_folder) is not None:
        try:
            await service.in_thread(keep_prompts, folder, texts)
        except OSError as why:  # the client gets its answer nevertheless
            log.warning("a prompt cannot be kept in %s (%s)", folder, why.strerror)
    for text in texts:
        text.asked_at, text.task_id = ticket.since, service.next_task_id
        text.plain_pass_ms = service.plain_pass_ms
    writing = Writing(service, texts, ticket)
    try:
        if not f.stream:
            while (batch := await writing.next()) is not None:
                text, chunks = batch
                for chunk in chunks:
                    text.take(chunk)
            if sum(t.n_values for t in texts) > N_AT_ONCE:  # others would wait for the loop meanwhile
                return await service.in_thread(lambda: Json(shape.answer()))
            return Json(shape.answer())
        # An early error is to be an ordinary answer with its status, so the headers wait for the first token.
        pending: asyncio.Task[Batch | None] = asyncio.create_task(writing.next())
        ping_s = service.settings.ping_s if f.sse_ping_interval is None else min(max(0, f.sse_ping_interval), DAY_S)
        try:
            progress = Progress(lambda: service.duo.engine.usage["target"]["cells"]) if f.return_progress else None
            await asyncio.wait([pending], timeout=LOOK_S if progress is not None else ping_s or None)
            if pending.done() and (e := pending.exception()) is not None:
                raise e
        except BaseException:
            forget(pending)
            raise
    except BaseException:
        await writing.close()
        raise
    finally:
        if not f.stream:
            await writing.close()
    return Events(shape, writing, pending, ping_s=ping_s, error_of=service.error_of, progress=progress)
