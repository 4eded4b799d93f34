"""Prints the CMAKE_ARGS for building llama-cpp-python on this machine: those of the environment, plus what they lack.

    CMAKE_ARGS="$(python3 tools/cmake_args.py)" pip install .

Standard library only: it runs before anything is installed.
"""

import os
import runpy
import sys
from pathlib import Path

ADVICE = Path(__file__).parents[1] / "src" / "duo" / "build_advice.py"


def main() -> int:
    advice = runpy.run_path(str(ADVICE))
    print(advice["cmake_args"](os.environ))
    if said := advice["missing"](os.environ):
        print(f"note: {said}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
