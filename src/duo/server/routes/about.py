"""Routes that tell of the server: health, the model, properties, slots, figures."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from duo import __version__
from duo.errors import DuoError
from duo.model import Duo
from duo.options.validate import generate_options
from duo.server.errors import ApiError
from duo.server.request_options import settings_shown
from duo.server.respond import Json
from duo.server.routes.slots import slot_list
from duo.server.service import RETRY_S

if TYPE_CHECKING:
    from duo.server.route_table import RouteTable
    from duo.server.service import Service
    from duo.server.settings import ServerSettings


CREATED = int(time.time())


# What the server says of its model, by route, as long as it is loaded.
ANSWERS: dict[str, Callable[[ServerSettings, Duo], Any]] = {
    "models": lambda s, duo: model_list(duo, s.names, s.tags),
    "props": lambda s, duo: properties(duo, s),
    "slots": lambda _s, duo: slot_list(duo, []),
}


def answers(settings: ServerSettings, duo: Duo) -> dict[str, Any]:
    """All of them, for the time when the models are freed."""
    return {name: make(settings, duo) for name, make in ANSWERS.items()}


async def _remembered(service: Service, name: str) -> Any:
    """One of them, also while the models are freed. Raises ApiError 503."""
    answer = service.remembered(name) if service.is_asleep else None
    if answer is not None:
        return answer
    return await service.in_thread(ANSWERS[name], service.settings, service.check_ready())


def _check_file(duo: Duo) -> None:
    """Raises ApiError 503: the target's file can no longer be read, so requests fail until it is loaded again."""
    target = duo.engine.target
    if target is not None and target.lost_file:
        raise ApiError(
            503,
            f"{Path(target.lost_file).name} can no longer be read; check it and start the server again",
            headers={"Retry-After": RETRY_S},
        )


def add(router: RouteTable, service: Service) -> None:
    async def health() -> Response:
        """200: requests are served. 503: the model is being loaded, its file is lost, or the server shuts down."""
        if not service.is_ready and not service.is_asleep:
            raise service.not_ready()
        if service.is_ready:
            _check_file(service.duo)
        return Json({"status": "ok"})

    for path in ("/health", "/v1/health"):
        router.get(path, include_in_schema=path == "/health")(health)

    @router.get("/livez")
    async def alive() -> Response:
        """200 as long as the process answers."""
        return Json({"status": "alive"})

    async def models() -> Response:
        """The one model, as OpenAI lists it; `models` is the shape of llama-server."""
        return Json(await _remembered(service, "models"))

    for path in ("/v1/models", "/models"):
        router.get(path, include_in_schema=path.startswith("/v1"))(models)

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        """The one model by its name."""
        answer = await _remembered(service, "models")
        if name not in service.settings.names:
            raise ApiError(404, f"there is no model {name[:100]!r} here; it is called {service.settings.names[0]}")
        return Json(answer["data"][0])

    @router.get("/props")
    async def props() -> Response:
        """What the server would do with a request that says nothing."""
        return Json({**await _remembered(service, "props"), "is_sleeping": service.is_asleep})

    @router.post("/props", include_in_schema=False)
    async def change_props() -> Response:
        """Changes nothing, as in llama-server."""
        if not service.settings.props:
            raise ApiError(501, "/props can only be read; start the server with --props")
        return Json({"success": True})

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Figures for Prometheus."""
        if not service.settings.metrics:
            raise ApiError(501, "/metrics is off; start the server without --no-metrics")
        headers = {"Process-Start-Time-Unix": str(int(service.metrics.started))}  # as in llama-server
        return Response(await service.metrics_page(), media_type="text/plain; version=0.0.4", headers=headers)


def sees(duo: Duo) -> bool:
    projector = duo.local_model.projector
    return projector is not None and projector.sees


def hears(duo: Duo) -> bool:
    projector = duo.local_model.projector
    return projector is not None and projector.rate > 0


def model_list(duo: Duo, names: tuple[str, ...], tags: tuple[str, ...]) -> dict[str, Any]:
    m = duo.local_model
    try:
        meta = duo.metadata
    except DuoError:  # the file has gone
        meta = {}
    architecture = meta.get("general.architecture", "")
    n_embd = meta.get(f"{architecture}.embedding_length")
    about = {
        "vocab_type": m.vocabulary.type,
        "n_vocab": m.n_vocab,
        "n_ctx": m.n_ctx,
        "n_ctx_train": m.n_ctx_train,
        "n_embd": int(n_embd) if n_embd else None,
        "size": m.n_bytes,
        "ftype": meta.get("general.file_type"),
        "description": m.description,
    }
    one = {
        "id": names[0],
        "aliases": list(names),
        "tags": list(tags),
        "object": "model",
        "created": CREATED,
        "owned_by": "duo",
        "meta": about,
    }
    listed = {
        "name": names[0],
        "model": names[0],
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": m.description,
        "tags": [""],
        "capabilities": ["completion", *(["multimodal"] if sees(duo) else [])],
        "parameters": "",
        "details": {"parent_model": "", "format": "gguf", "family": architecture, "families": [architecture],
                    "parameter_size": "", "quantization_level": ""},
    }  # fmt: skip
    return {"models": [listed], "object": "list", "data": [one]}


def properties(duo: Duo, settings: ServerSettings) -> dict[str, Any]:
    """As llama-server's, and what only duo has."""
    m = duo.local_model
    try:
        template, traits = duo.chat_template.source, duo.chat_template.traits
    except DuoError:
        template, traits = "", None
    return {
        "default_generation_settings": {
            "params": settings_shown(generate_options({**duo.defaults}), duo),
            "n_ctx": m.n_ctx,
        },
        "total_slots": duo.session.turns.n,
        "model_alias": settings.names[0],
        "model_path": m.path,
        "model_name": Path(m.path).name,
        "modalities": {"vision": sees(duo), "audio": hears(duo)},
        "chat_template": template,
        "chat_template_caps": {
            "supports_tools": traits is not None and traits.tools,
            "supports_tool_calls": traits is not None and traits.calls.shown,
            "supports_parallel_tool_calls": traits is not None and traits.calls.shown and traits.calls.parallel,
            "supports_object_arguments": traits is not None and traits.calls.objects,
            "supports_system_role": bool(template) if traits is None else traits.system,
            "supports_preserve_reasoning": "reasoning_content" in template,
        },
        "bos_token": _special(duo, m.token_bos),
        "eos_token": _special(duo, m.token_eos),
        "build_info": f"duo {__version__}",
        "ui_settings": settings.page.given,
        "webui_settings": settings.page.given,
        "duo": {
            "draft": _draft_name(duo),
            "speculates": duo.session.has_draft,
            "max_body": settings.n_body,
            "page": {
                "theme": settings.page.theme,
                "system": settings.page.system,
                "fields": settings.page.fields,
            },
        },
    }


def _draft_name(duo: Duo) -> str | None:
    return duo.elsewhere or None if duo.draft is None else Path(duo.draft.path).name


def _special(duo: Duo, token: int) -> str:
    return duo.decode([token], special=True) if token >= 0 else ""
