"""References ("$ref") within a JSON schema."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from duo.errors import BadValueError
from duo.support.wording import quoted


class References:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._anchors: dict[str, Any] | None = None

    def target(self, ref: Any) -> Any:
        """The schema that a reference names. Raises ValueError."""
        if not isinstance(ref, str):
            raise ValueError(f"the reference {quoted(ref, 40)} is not a string")
        own = self._root.get("$id") if isinstance(self._root, dict) else None
        if isinstance(own, str) and own and ref.startswith(own):
            ref = ref.removeprefix(own) or "#"
        if not ref.startswith("#"):
            raise ValueError(
                f"the reference {quoted(ref, 100)} is remote; only those within the schema can be followed"
            )
        found = self._root
        if ref not in ("#", "#/") and not ref.startswith("#/"):
            return self._anchored(ref)
        # "#/" names the property "" by RFC 6901, and means the whole schema where people write it.
        for part in ref.split("/")[1:] if ref != "#/" else ():
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name[:9]) < len(found):
                found = found[int(name[:9])]
            else:
                raise _missing(ref)
        return found

    def _anchored(self, ref: str) -> Any:
        if self._anchors is None:
            self._anchors, left = {}, [self._root]
            while left:
                x = left.pop()
                if isinstance(x, dict) and isinstance(x.get("$anchor"), str):
                    self._anchors["#" + x["$anchor"]] = x
                left += list(x.values()) if isinstance(x, dict) else x if isinstance(x, list) else []
        if ref not in self._anchors:
            raise _missing(ref)
        return self._anchors[ref]


def _missing(ref: str) -> BadValueError:
    return BadValueError(f"the JSON schema (-j) refers to {quoted(ref, 100)}, which it does not contain; correct it")
