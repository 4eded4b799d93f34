"""The body of a request as its fields."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError
from starlette.requests import Request

from duo.server.errors import ApiError
from duo.server.schemas import Fields, build
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.server.service import Service

F = TypeVar("F", bound=Fields)
N_QUICK = 1 << 16  # bytes; a larger body is read in a thread


def body_of(request: Request) -> bytes:
    """Once: its scope lives as long as the connection, and does not hold it any more."""
    body: bytes = request.scope.pop("duo.body")
    return body


async def fields_of(service: Service, request: Request, kind: type[F]) -> F:
    """Raises ApiError 400: no JSON, or a field of a wrong type."""
    body = body_of(request)
    if len(body) > N_QUICK:
        return await service.in_thread(_read, body, kind)
    return _read(body, kind)


def parsed(body: bytes) -> Any:
    """Raises ApiError 400: it is no JSON, or has a number that is not finite."""
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=_finite, parse_float=_finite)
    except UnicodeDecodeError as e:
        raise ApiError(400, f"the body is not UTF-8 (byte {e.start}); send JSON as UTF-8") from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply; simplify it") from None
    except json.JSONDecodeError as e:
        raise ApiError(400, f"the body is not JSON ({e}); send an object") from None
    except ValueError:  # Python's limit
        raise ApiError(400, "a number in the body has too many digits; shorten it") from None


def _finite(number: str) -> float:
    """Raises ApiError 400: no answer could repeat the number, because JSON has no infinity."""
    value = float(number)
    if not isfinite(value):
        raise ApiError(400, f"the body holds {quoted(number, 40)}, which is no finite number; send another one")
    return value


def _read(body: bytes, kind: type[F]) -> F:
    value = parsed(body)
    if not isinstance(value, dict):
        raise ApiError(400, f"the body is {quoted(value, 40)}; send a JSON object")
    return checked(kind, value)


def checked(kind: type[F], fields: dict[str, Any]) -> F:
    """The fields of an object. Raises ApiError 400: one has a wrong type."""
    build(kind)
    try:
        return kind.model_validate(fields)
    except ValidationError as e:
        first = e.errors(include_url=False, include_context=False)[0]
        name, why = ".".join(map(str, first["loc"][:1])), first["msg"]
        message = f"Field '{name}': {why[0].lower()}{why[1:]}, and it is {quoted(first['input'], 80)}"
        raise ApiError(400, message.encode("utf-8", "replace").decode()) from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply; simplify it") from None
