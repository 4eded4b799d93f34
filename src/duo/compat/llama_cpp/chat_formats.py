"""llama_cpp's own chat formats and handlers, called as llama_cpp.Llama calls them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from duo import _core
from duo.build_advice import package
from duo.errors import BadValueError, DuoError, MissingPackageError
from duo.support.wording import one_line

if TYPE_CHECKING:
    from duo.compat.llama_cpp.completion import Completions

Handler = Callable[..., Any]


def handler_of(name: str) -> Handler | None:
    """The handler that llama_cpp has under this name of a chat format; None: there is none.

    Raises MissingPackageError: llama_cpp is not installed, as a wheel does not need it.
    """
    was_loaded = "llama_cpp" in sys.modules
    try:
        from llama_cpp import llama_chat_format
    except ImportError as e:
        raise MissingPackageError(
            f"chat_format={name!r} is one of llama-cpp-python's, which cannot be imported ({one_line(e, 200)}); "
            f"run pip install {package()}, or give chat_template"
        ) from None

    if not was_loaded:
        _core.take_log()
    try:
        handler: Handler = llama_chat_format.get_chat_completion_handler(name)
    except llama_chat_format.LlamaChatCompletionHandlerNotFoundException:
        return None
    return handler


def see_as_handler(options: dict[str, Any]) -> None:
    """Replaces a handler for images in keywords of `Duo` by those that do the same: its projector, and its template if
    it has one of its own. What is given beside it counts more."""
    handler = options.get("chat_handler")
    if not hasattr(handler, "clip_model_path"):
        return
    del options["chat_handler"]
    options.setdefault("mmproj", getattr(handler, "clip_model_path"))  # noqa: B009 - the type is unknown
    if not getattr(handler, "use_gpu", True):
        options.setdefault("mmproj_offload", False)
    if isinstance(template := getattr(handler, "CHAT_FORMAT", None), str):
        options.setdefault("chat_template", template)


def check_handler(handler: object) -> Handler | None:
    """A chat_handler that a program gave. Raises BadValueError: it is none, or it is one for images."""
    if handler is None:
        return None
    if not callable(handler):
        raise BadValueError(f"chat_handler is {type(handler).__name__}; give a function, as llama_cpp's handlers are")
    if hasattr(handler, "clip_model_path"):
        raise BadValueError(
            f"chat_handler is {type(handler).__name__}, which is for images; give it when you load the model"
        )
    return handler


class Caller:
    """What a handler gets as its `llama`: a Duo, whose completions take these further keywords."""

    verbose = False

    def __init__(self, duo: Completions, own: Mapping[str, Any]) -> None:
        self._duo, self._own = duo, own
        self.raised: Exception | None = None  # by the text, not by the handler

    def create_completion(self, *positional: Any, **options: Any) -> Any:
        try:
            return self._duo.create_completion(*positional, **{**options, **self._own})
        except Exception as e:
            self.raised = e
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._duo, name)


def handled(handler: Handler, duo: Completions, arguments: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    """The answer of the handler. arguments: arguments of create_chat_completion; own: keywords that only duo has.

    Raises DuoError, and what a function of the program's own raises: a handler or a logits_processor.
    """
    caller = Caller(duo, own)
    try:
        return handler(llama=caller, **arguments)
    except (DuoError, TypeError):
        raise
    except Exception as e:  # llama_cpp's handlers assert, and take what they need from their Llama
        if e is caller.raised or not str(getattr(handler, "__module__", "")).startswith("llama_cpp"):
            raise
        why = one_line(e, 200)
        raise BadValueError(
            f"llama_cpp's handler of this chat format failed ({why}); choose another chat_format"
        ) from e
