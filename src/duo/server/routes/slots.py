"""/slots: what each slot is doing, and files of what the slots hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from duo.errors import BadValueError
from duo.generation import slot_file
from duo.model import Duo
from duo.server.errors import ApiError
from duo.server.request_body import fields_of
from duo.server.request_options import settings_shown
from duo.server.respond import Json
from duo.server.schemas import SlotFields
from duo.server.text import ServedText
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.server.route_table import RouteTable
    from duo.server.service import Service

ACTIONS = ("save", "restore", "erase")
N_NAME = 255  # bytes of a file's name


def add(router: RouteTable, service: Service) -> None:
    @router.get("/slots")
    async def slots(request: Request) -> Response:
        """What each slot is doing. fail_on_no_slot: 503 if none is idle."""
        if not service.settings.slots:
            raise ApiError(501, "/slots is off; start the server without --no-slots")
        slot_dicts = service.remembered("slots") if service.is_asleep else None
        if slot_dicts is None:
            slot_dicts = slot_list(service.check_ready(), list(service.running))
        if request.query_params.get("fail_on_no_slot") and all(s["is_processing"] for s in slot_dicts):
            raise ApiError(503, "no slot available")
        return Json(slot_dicts)

    one_at_a_time = asyncio.Lock()

    @router.post("/slots/{id_slot}", body=SlotFields)
    async def act(id_slot: str, request: Request) -> Response:
        """action=save, restore: what the slot's caches hold, to a file of --slot-save-path and back. erase: nothing
        is kept there. Waits until no text is written."""
        action = request.query_params.get("action", "")
        if action not in ACTIONS:
            raise ApiError(400, f"action is {quoted(action, 40)}; it is save, restore or erase")
        folder = service.settings.slot_folder
        if folder is None:
            raise ApiError(501, "this server has no folder for files of slots; start it with --slot-save-path")
        path = None
        if action != "erase":
            path = folder / _name((await fields_of(service, request, SlotFields)).filename)
        duo = service.check_ready()
        slot = _slot_number(id_slot, duo)
        async with one_at_a_time:
            return Json(await service.in_thread(_act, duo, action, slot, path))


def _slot_number(id_slot: str, duo: Duo) -> int:
    n = duo.session.turns.n
    if not (id_slot.isascii() and id_slot.isdigit() and len(id_slot) < 6 and int(id_slot) < n):
        raise ApiError(400, f"id_slot is {quoted(id_slot, 40)}; there are {n} slots, from 0")
    return int(id_slot)


def _name(name: str | None) -> str:
    """A name without a folder. Raises ApiError."""
    bad = not name or name in (".", "..") or any(c in name for c in "/\\:\0") or not name.isprintable()
    if bad or name is None or len(name.encode("utf-8", "replace")) > N_NAME:
        raise ApiError(400, f"filename is {quoted(name, 40)}; give the name of a file, without a folder")
    return name


def _act(duo: Duo, action: str, slot: int, path: Path | None) -> dict[str, Any]:
    began = time.monotonic()
    if action == "save" and path is not None and path.is_symlink():  # whoever asks chooses no file outside the folder
        raise BadValueError(f"the file {quoted(path.name)} is a link; give another name")
    try:
        if path is None:
            return {"id_slot": slot, "n_erased": slot_file.erase(duo.session, slot)}
        act: Callable[..., tuple[int, int]] = slot_file.save if action == "save" else slot_file.restore
        n_tokens, n_bytes = act(duo.session, slot, path)
    except OSError as e:
        raise BadValueError(
            f"the file {quoted(path and path.name)} cannot be used ({e.strerror or e}); check it"
        ) from None
    ms = (time.monotonic() - began) * 1e3
    names = ("n_saved", "n_written", "save_ms") if action == "save" else ("n_restored", "n_read", "restore_ms")
    shown = {names[0]: n_tokens, names[1]: n_bytes, "timings": {names[2]: ms}}
    return {"id_slot": slot, "filename": "" if path is None else path.name, **shown}


def slot_list(duo: Duo, running: list[ServedText]) -> list[dict[str, Any]]:
    """For each slot what it is doing, as llama-server shows it."""
    by_slot = {t.stream.stream.slot if t.stream is not None else -1: t for t in running}
    return [_slot(i, duo, by_slot.get(i)) for i in range(duo.session.turns.n)]


def _slot(i: int, duo: Duo, text: ServedText | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": i,
        "n_ctx": duo.n_ctx(),
        "speculative": duo.session.has_draft,
        "is_processing": text is not None,
    }
    if text is None:
        return fields
    most = text.job.options["max_tokens"]
    left = {
        "has_next_token": True,
        "has_new_line": "\n" in text.text,
        "n_remain": most - text.n_tokens if most >= 0 else -1,
        "n_decoded": text.n_tokens,
    }
    return {
        **fields,
        "id_task": text.task_id,
        "n_prompt_tokens": text.n_prompt,
        "params": settings_shown(text.job.options, duo),
        "next_token": [left],
    }
