"""The options of llama.cpp's programs, read from its common/arg.cpp.

python tools/llama_args.py SDIST > tests/llama_cpp_args.json

SDIST is an unpacked sdist of llama-cpp-python. A test asks that duo knows what each of these options means to it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

# The options of every program, unless LLAMA_EXAMPLE_... names some.
EVERY = "COMMON"


class Arg(NamedTuple):
    names: list[str]  # all spellings, those that switch it off too
    value: bool  # it takes one
    programs: list[str]  # LLAMA_EXAMPLE_...
    env: str  # empty: none


def _strings(text: str) -> list[str]:
    return re.findall(r'"([^"]+)"', text)


def read(arg_cpp: str) -> list[Arg]:
    """common_arg(names, [names of the opposite,] [hint of the value,] help, function).set_examples(...).set_env(...)"""
    found = []
    for block in arg_cpp.split("add_opt(common_arg(")[1:]:
        head = re.match(r"\s*(?://[^\n]*\s*)*\{([^}]*)\}\s*,\s*(?:\{([^}]*)\}\s*,\s*)?", block)
        function = re.search(r"\[[^\]]*\]\(common_params &[^,)]*(,[^)]*)?\)", block)
        if head is None or function is None:
            raise SystemExit(f"arg.cpp has an option that {Path(__file__).name} cannot read: {block[:80]!r}")
        programs = re.search(r"set_examples\(\{([^}]*)\}\)", block)
        env = re.search(r'set_env\("([^"]+)"\)', block)
        found.append(
            Arg(
                names=_strings(head[1]) + _strings(head[2] or ""),
                value=function[1] is not None and "bool" not in function[1],
                programs=re.findall(r"LLAMA_EXAMPLE_(\w+)", programs[1]) if programs else [EVERY],
                env=env[1] if env else "",
            )
        )
    return found


def main() -> None:
    (path,) = Path(sys.argv[1]).rglob("common/arg.cpp")
    rows = [json.dumps(arg._asdict()) for arg in read(path.read_text("utf-8"))]
    print("[\n" + ",\n".join(rows) + "\n]")


if __name__ == "__main__":
    main()
