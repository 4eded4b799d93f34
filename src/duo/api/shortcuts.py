"""One text and no more: load, write, unload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duo.api.engine import Duo
from duo.models.paths import PathLike
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS
from duo.options.validate import check_keywords
from duo.text.result import Result
from duo.text.stream import Stream

if TYPE_CHECKING:
    from duo.text.job import Prompt


def _split(function: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    check_keywords(function, options, ENGINE_OPTIONS, GENERATE_OPTIONS)
    return (
        {k: v for k, v in options.items() if k in ENGINE_OPTIONS},
        {k: v for k, v in options.items() if k in GENERATE_OPTIONS},
    )


def generate(prompt: Prompt, *, model: PathLike | None = None, draft: PathLike | None = None, **options: Any) -> Result:
    """Loads, generates, unloads. Keywords of `Duo` and of `Duo.generate`; without `model` the demo pair."""
    for_engine, for_text = _split("generate", options)
    with Duo(model, draft, **for_engine) as d:
        return d.generate(prompt, **for_text)


def stream(prompt: Prompt, *, model: PathLike | None = None, draft: PathLike | None = None, **options: Any) -> Stream:
    """As `generate`, chunk by chunk; the models are unloaded when the stream ends or is closed."""
    for_engine, for_text = _split("stream", options)
    d = Duo(model, draft, **for_engine)
    try:
        s = d.stream(prompt, **for_text)
    except BaseException:
        d.close()
        raise
    s.on_close = d.close
    return s
