"""The child process of duo.placement.trial: computes products that may end it, and says how far it came.

Arguments: libllama, the extension module, and two lists of names, one a line: kinds of products to leave out, and duo's
instruction sets that are not to be used. Standard library only, nothing of duo: it starts in milliseconds.
"""

import ctypes
import sys


def main() -> int:
    libllama, core, skip, refused = sys.argv[1:]
    ctypes.CDLL(libllama, mode=ctypes.RTLD_GLOBAL)
    # Not imported: the function needs no Python. csrc/cpu/trial.cpp has it.
    code: int = ctypes.CDLL(core).duo_try_products(skip.encode(), refused.encode())
    return code


if __name__ == "__main__":
    sys.exit(main())
