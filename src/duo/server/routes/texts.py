"""Routes that write: OpenAI's chats and completions, llama-server's completion and infill."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from duo.compat.llama_cpp.infill import infill
from duo.errors import BadValueError
from duo.server.build_jobs import listed, score_prompts, texts_of, tokens_of
from duo.server.chat_options import chat_texts, count_of
from duo.server.formats.chat import ChatShape
from duo.server.formats.completion import CompletionShape
from duo.server.formats.native import NativeShape
from duo.server.formats.shape import AnswerFormat
from duo.server.infill_prompt import infill_prompt
from duo.server.request_body import fields_of
from duo.server.respond import respond
from duo.server.schemas import ChatFields, CompletionFields, InfillFields, PromptFields, TextFields
from duo.server.text import ServedText

if TYPE_CHECKING:
    from duo.model import Duo
    from duo.server.route_table import RouteTable
    from duo.server.service import Service

F = TypeVar("F", bound=PromptFields)


def add(router: RouteTable, service: Service) -> None:
    async def chat(request: Request) -> Response:
        """An answer to a conversation, as OpenAI's."""
        f = await fields_of(service, request, ChatFields)

        def make() -> tuple[list[ServedText], AnswerFormat]:
            texts = chat_texts(f, service.duo, service.settings)
            return texts, ChatShape(*common(service, texts), verbose=verbose(service, texts, f), **of_stream(f))

        return await respond(service, request, f, count_of(f), make)

    async def completions(request: Request) -> Response:
        """A text for each prompt, as OpenAI's."""
        f = await fields_of(service, request, CompletionFields)
        prompts = listed(f.prompt)

        def make() -> tuple[list[ServedText], AnswerFormat]:
            if f.best_of is not None and f.best_of > count_of(f):
                raise BadValueError("best_of is not supported; ask for n texts")
            duo = service.duo
            if f.suffix:
                pairs = [_filled(duo, p, f.suffix) for p in prompts]
            else:
                pairs = [(_words(p), tokens_of(duo, p)) for p in prompts]
                if f.echo or f.logprobs is not None or f.n_probs:  # offsets count from the prompt's begin
                    pairs = [(duo.decode(ids) if isinstance(p, list) else words, ids)
                             for p, (words, ids) in zip(prompts, pairs, strict=True)]  # fmt: skip
            shape = {} if f.logprobs is None else {"logprobs": f.logprobs}
            texts = texts_of(duo, f, pairs, shape=shape)
            if f.echo:
                score_prompts(duo.session, texts, count_of(f), [_is_ids(p) for p in prompts])
            more = verbose(service, texts, f)
            return texts, CompletionShape(*common(service, texts), echo=bool(f.echo), verbose=more, **of_stream(f))

        return await respond(service, request, f, count_of(f) * len(prompts), make)

    async def completion(request: Request) -> Response:
        """A text for each prompt, as llama-server's."""
        f = _with_n_probs(await fields_of(service, request, PromptFields))
        prompts = listed(f.prompt)

        def make() -> tuple[list[ServedText], AnswerFormat]:
            texts = texts_of(service.duo, f, [(_words(p), tokens_of(service.duo, p)) for p in prompts])
            return texts, native(service, texts, f)

        return await respond(service, request, f, count_of(f) * len(prompts), make)

    async def fill(request: Request) -> Response:
        """What stands between two pieces of code."""
        f = _with_n_probs(await fields_of(service, request, InfillFields))

        def make() -> tuple[list[ServedText], AnswerFormat]:
            duo = service.duo
            texts = texts_of(duo, f, [(_words(f.input_prefix), infill_prompt(duo, f))])
            return texts, native(service, texts, f)

        return await respond(service, request, f, count_of(f), make)

    for path in ("/v1/chat/completions", "/chat/completions"):
        router.post(path, body=ChatFields, include_in_schema=path.startswith("/v1"))(chat)
    router.post("/v1/completions", body=CompletionFields)(completions)
    for path in ("/completion", "/completions"):
        router.post(path, body=PromptFields, include_in_schema=path == "/completion")(completion)
    router.post("/infill", body=InfillFields)(fill)


def common(service: Service, texts: list[ServedText]) -> tuple[object, str, list[ServedText]]:
    """What all shapes are made of."""
    return service.duo.local_model, service.settings.names[0], texts


def of_stream(f: TextFields) -> dict[str, object]:
    """What all shapes are told."""
    with_usage = bool(f.stream and (f.stream_options or {}).get("include_usage"))
    return {"n": count_of(f), "per_token": bool(f.timings_per_token), "with_usage": with_usage}


def verbose(service: Service, texts: list[ServedText], f: TextFields) -> Callable[[ServedText], dict[str, Any]] | None:
    """What the request, or the server with --verbose, wants to be told beside an answer; None: nothing."""
    is_verbose = service.settings.verbose if f.verbose is None else f.verbose
    return native(service, texts, f).full_answer if is_verbose else None


def native(service: Service, texts: list[ServedText], f: TextFields) -> NativeShape:
    return NativeShape(
        *common(service, texts),
        duo=service.duo,
        fields=f.response_fields or (),
        with_tokens=bool(f.return_tokens),
        **of_stream(f),
    )


def _with_n_probs(f: F) -> F:
    """llama-server's own routes take logprobs for n_probs."""
    if f.n_probs is None and f.logprobs is not None:
        f.n_probs = int(f.logprobs)
    return f


def _is_ids(prompt: object) -> bool:
    return isinstance(prompt, list) and all(isinstance(x, int) for x in prompt)


def _filled(duo: Duo, prompt: Any, suffix: str) -> tuple[str, list[int]]:
    """A prompt that a suffix follows, as text and as ids. Raises BadValueError."""
    is_ids = _is_ids(prompt)
    ids = infill(duo.local_model, prompt if is_ids else _words(prompt), suffix, suffix_first=duo.spm_infill)
    return duo.decode(prompt) if is_ids else _words(prompt), [*ids]


def _words(prompt: object) -> str:
    """A prompt as text, as far as it is text."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, dict):
        return str(prompt.get("prompt_string") or "")
    return "".join(x for x in prompt if isinstance(x, str)) if isinstance(prompt, list) else ""
