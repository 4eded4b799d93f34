"""The metadata of a wheel with llama.cpp inside."""

from __future__ import annotations

import re
from collections.abc import Mapping


def wheel_metadata(metadata: str, extras: Mapping[str, str] | None = None) -> str:
    """The wheel needs what `duo serve` needs. llama-cpp-python is an extra: only its chat formats need it. extras:
    further ones, with what they need."""
    if "\nRequires-Dist: llama-cpp-python==" not in metadata:
        raise ValueError("the metadata does not name llama-cpp-python")
    made: list[str] = []
    for line in metadata.split("\n"):
        requirement, _, marker = line.partition(";")
        if line.startswith("Requires-Dist: llama-cpp-python=="):
            made += ["Provides-Extra: llama-cpp", f'{line}; extra == "llama-cpp"']
            for extra, needed in (extras or {}).items():
                made += [f"Provides-Extra: {extra}", f'Requires-Dist: {needed}; extra == "{extra}"']
        elif line.startswith("Requires-Dist: ") and re.fullmatch(r"\s*extra == .server.\s*", marker):
            made += [requirement, line]
        else:
            made.append(line)
    return "\n".join(made)
