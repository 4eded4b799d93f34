"""Prints what one extra of the installed duo-llama needs, a line each: pyproject.toml stays the only list.

An extra may contain others ("duo-llama[server,remote]"); their requirements are printed in place of that line, so that
pip looks for no package of duo's name.

python tools/extra_requirements.py test
"""

import re
import sys
from collections.abc import Iterable
from importlib.metadata import requires

NAME = "duo-llama"


def requirements_of(extra: str, declared: Iterable[str]) -> list[str]:
    """declared: the metadata's lines, as 'pytest>=8; extra == "test"'. Each requirement once, without its marker."""
    found: list[str] = []
    declared = list(declared)
    for line in declared:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        if f'extra == "{extra}"' not in marker:
            continue
        if own := re.fullmatch(rf"{NAME}\[(.+)\]", requirement):
            found += [r for other in own[1].split(",") for r in requirements_of(other.strip(), declared)]
        else:
            found.append(requirement)
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    print("\n".join(requirements_of(sys.argv[1], requires(NAME) or [])))
