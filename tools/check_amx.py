"""Checks the AMX code of the installed llama-cpp-python on this machine. Prints a line and exits with 3 if it crashes.

    python tools/check_amx.py

duo tries the code in a child process. The exit code is also 0 if there is no AMX, or if nothing could be tried.
"""

import sys

from duo.placement import guard
from duo.placement.finding import AMX
from duo.placement.trial import WORKS


def main() -> int:
    end = guard.find().verdicts.get(AMX, WORKS)
    if end == WORKS:
        return 0
    print(f"This llama.cpp's AMX code does not work here ({end}); compiling it again")
    return 3


if __name__ == "__main__":
    sys.exit(main())
