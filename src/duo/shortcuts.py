"""One text and no more: load, write, unload."""

from __future__ import annotations

from typing import Any, cast

from typing_extensions import Unpack

from duo.generation.job import Prompt
from duo.generation.result import Result
from duo.generation.stream import Stream
from duo.model import Duo
from duo.models.paths import PathLike
from duo.options.generate import GenerateOptions
from duo.options.llama_cpp import LoadOptions, OnceOptions
from duo.options.signature import keywords
from duo.options.tables import GENERATE_OPTIONS
from duo.options.validate import check_keywords


def _split(function: str, options: OnceOptions) -> tuple[LoadOptions, GenerateOptions]:
    keywords: dict[str, Any] = {**options}
    check_keywords(function, keywords, OnceOptions.__annotations__)
    return (
        cast("LoadOptions", {k: v for k, v in keywords.items() if k not in GENERATE_OPTIONS}),
        cast("GenerateOptions", {k: v for k, v in keywords.items() if k in GENERATE_OPTIONS}),
    )


@keywords(OnceOptions)
def generate(
    prompt: Prompt, *, model: PathLike | None = None, draft: PathLike | None = None, **options: Unpack[OnceOptions]
) -> Result:
    """Loads the models, writes a text, and frees the models. Errors are those of `Duo` and of `Duo.stream`.

    Args:
        prompt: Text, or token ids.
        model: The target's file. Default: the demo pair that comes with the package.
        draft: The draft's file. Default: none.
        **options: Keywords of `Duo` and of a text.
    """
    for_engine, for_text = _split("generate", options)
    with Duo(model, draft, **for_engine) as d:
        return d.generate(prompt, **for_text)


@keywords(OnceOptions)
def stream(
    prompt: Prompt, *, model: PathLike | None = None, draft: PathLike | None = None, **options: Unpack[OnceOptions]
) -> Stream:
    """`generate`, chunk by chunk, with the same errors. The models are freed when the stream ends or is closed.

    Args:
        prompt: Text, or token ids.
        model: The target's file. Default: the demo pair that comes with the package.
        draft: The draft's file. Default: none.
        **options: Keywords of `Duo` and of a text.
    """
    for_engine, for_text = _split("stream", options)
    d = Duo(model, draft, **for_engine)
    try:
        s = d.stream(prompt, **for_text)
    except BaseException:
        d.close()
        raise
    s.on_close = d.close
    return s
