"""Prints the CMAKE_ARGS for building llama-cpp-python on this machine: those of the environment, plus what they lack,
and a file that leaves out the code of llama.cpp's programs.

    CMAKE_ARGS="$(python3 tools/cmake_args.py)" pip install .

Standard library only: it runs before anything is installed.
"""

import os
import runpy
import shlex
import sys
from pathlib import Path

ADVICE = Path(__file__).parents[1] / "src" / "duo" / "build_advice.py"
LIBRARIES = Path(__file__).with_name("llama_libraries.cmake")
_OF_THE_USER = ("CMAKE_PROJECT_llama_cpp_INCLUDE", "LLAMA_BUILD_COMMON")


def libraries_only(args: str) -> str:
    """These CMAKE_ARGS for a build without the code of llama.cpp's programs, unless they choose for themselves."""
    if any(name in args for name in _OF_THE_USER):
        return args
    return f"{args} {shlex.quote(f'-DCMAKE_PROJECT_llama_cpp_INCLUDE={LIBRARIES.resolve()}')}"


def main() -> int:
    advice = runpy.run_path(str(ADVICE))
    print(libraries_only(advice["cmake_args"](os.environ)))
    if said := advice["missing"](os.environ):
        print(f"note: {said}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
