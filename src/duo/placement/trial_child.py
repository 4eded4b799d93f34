"""The child process of duo.placement.trial: computes products that may kill it, and reports its progress.

Arguments: libllama, the extension module, and two lists with one name per line: kinds of products to leave out, and
duo's instruction sets that must not be used. It uses only the standard library, so it starts in milliseconds.
"""

import ctypes
import sys


def main() -> int:
    libllama, core, skip, refused = sys.argv[1:]
    ctypes.CDLL(libllama, mode=ctypes.RTLD_GLOBAL)
    # Not imported, because the function (csrc/cpu/trial.cpp) needs no Python.
    code: int = ctypes.CDLL(core).duo_try_products(skip.encode(), refused.encode())
    return code


if __name__ == "__main__":
    sys.exit(main())
