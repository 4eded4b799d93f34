"""Prints the CMAKE_ARGS for building llama-cpp-python on this machine: those of the environment, plus what they lack,
and a file that leaves out the code of llama.cpp's programs.

    CMAKE_ARGS="$(python3 tools/cmake_args.py)" pip install .

--stamp FILE: without CMAKE_ARGS those that the file holds, of the llama.cpp that is installed, and not the default.
--is-built: prints none, and exits with 1 if what is installed was built with others.

Standard library only: it runs before anything is installed.
"""

import argparse
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


def _is_built(stamp: Path, chosen: str, default: str) -> bool:
    """chosen: the arguments that CMAKE_ARGS mean; empty: it is not set, and any build will do."""
    if not stamp.exists():
        return False
    built = stamp.read_text("utf-8").strip()
    if chosen:
        return built == chosen
    if built not in ("", default):
        print(f"llama.cpp stays as it was built, with CMAKE_ARGS={shlex.quote(built)}", file=sys.stderr)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--stamp", type=Path)
    parser.add_argument("--is-built", action="store_true")
    asked = parser.parse_args()
    advice = runpy.run_path(str(ADVICE))
    args, is_set = libraries_only(advice["cmake_args"](os.environ)), bool(os.environ.get("CMAKE_ARGS", "").strip())
    if asked.is_built:
        return 0 if _is_built(asked.stamp, args if is_set else "", args) else 1
    if asked.stamp is not None and not is_set and asked.stamp.exists():
        args = asked.stamp.read_text("utf-8").strip() or args
    print(args)
    if said := advice["missing"](os.environ):
        print(f"note: {said}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
