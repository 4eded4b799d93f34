"""What can go wrong, as exceptions whose text is one sentence: what was wrong and what to do.

Programs tell them apart by class or by `code`, which stays the same in later versions; the texts may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from duo.generation.result import Result


class DuoError(Exception):
    """A user's mistake or a failure. `result` holds what was generated before, if anything was."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


class BadValueError(DuoError, ValueError):
    """An option, a prompt or a file's content that cannot be used; llama_cpp raises ValueError there."""

    code = "bad_value"


class UnknownModelError(BadValueError):
    """There is no such file, repository or pair, or it is no model."""

    code = "unknown_model"


class ContextFullError(BadValueError):
    """The prompt leaves no room in the context."""

    code = "context_full"


class DoesNotFitError(DuoError):
    """The models need more memory or disk than there is."""

    code = "does_not_fit"


class BusyError(DuoError):
    """Another text is being written, or a host serves another client."""

    code = "busy"


class PeerLostError(DuoError):
    """The other machine cannot be reached, or refuses."""

    code = "peer_lost"


class AccessDeniedError(DuoError):
    """A model of the hub that this user may not read: it is gated or private, or the token is wrong."""

    code = "access_denied"


class MissingPackageError(DuoError, ImportError):
    """A Python package that this needs is not installed, or does not work."""

    code = "missing_package"


class CancelledError(DuoError):
    """The text was stopped from outside: its Duo was closed."""

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
