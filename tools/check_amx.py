"""Does the AMX code of the installed llama-cpp-python work on this machine? Exit code 3, and a line, if it crashes.

    python tools/check_amx.py

Asks duo, which tries it in a child process. 0 as well: no AMX here, or nothing could be tried.
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
