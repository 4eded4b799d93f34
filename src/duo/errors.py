"""What can go wrong, as exceptions whose text is one sentence: what was wrong and what to do.

Programs tell them apart by class or by `code`, which stays the same in later versions; the texts may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from duo.generation.result import Result


class DuoError(Exception):
    """duo, llama.cpp or the system failed. All other errors are subclasses.

    Its text is one sentence. `code` is the class's stable name, for logs and protocols. `result` is the text so far, if
    the error ended a text that had begun.
    """

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


class BadValueError(DuoError, ValueError):
    """An option, a prompt or the content of a file cannot be used. It is a ValueError too, as in llama_cpp."""

    code = "bad_value"


class UnknownModelError(BadValueError):
    """There is no such file, repository or pair, or it is not a model."""

    code = "unknown_model"


class ContextFullError(BadValueError):
    """The prompt leaves no room in the context."""

    code = "context_full"


class DoesNotFitError(DuoError):
    """The models need more memory or disk space than is free."""

    code = "does_not_fit"


class BusyError(DuoError):
    """This thread or task has another text open, or a host or the hub is busy."""

    code = "busy"


class PeerLostError(DuoError):
    """A host or the hub cannot be reached, or refuses."""

    code = "peer_lost"


class AccessDeniedError(DuoError):
    """A model of the hub is gated or private, or the token is wrong."""

    code = "access_denied"


class MissingPackageError(DuoError, ImportError):
    """A Python package is not installed, or does not work. It is an ImportError too."""

    code = "missing_package"


class CancelledError(DuoError):
    """The `Duo` was closed while it wrote the text. Import it from `duo` or `duo.errors`; `from duo import *` leaves it
    out, because asyncio has a CancelledError too."""

    code = "cancelled"


def error_class(code: str) -> type[DuoError]:
    """The class with this code; DuoError if this version does not know it."""
    classes = (
        BadValueError, UnknownModelError, ContextFullError, DoesNotFitError, BusyError, PeerLostError,
        AccessDeniedError, MissingPackageError, CancelledError,
    )  # fmt: skip
    return next((c for c in classes if c.code == code), DuoError)


# Their names up to 0.2.0, for programs that use them.
BadValue = BadValueError
UnknownModel = UnknownModelError
ContextFull = ContextFullError
DoesNotFit = DoesNotFitError
Busy = BusyError
PeerLost = PeerLostError
Cancelled = CancelledError
