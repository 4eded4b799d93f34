"""Checks that the installed llama-cpp-python has the backends that CMAKE_ARGS and the like request. Exit code 1 if not.

python tools/check_llama.py "-DGGML_RPC=on -DGGML_CUDA=on" [--load]

--load: also that the system can load it.
"""

import ctypes
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

from build_facts import switched_on

# The others are parts of these, or of the CPU's.
BACKENDS = ("CUDA", "HIP", "METAL", "RPC", "SYCL", "VULKAN")


def main() -> int:
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        print("llama-cpp-python is not installed", file=sys.stderr)
        return 1
    libraries = Path(spec.origin).parent / "lib"
    there = {p.name for p in libraries.iterdir()}
    wanted = switched_on({**os.environ, "CMAKE_ARGS": sys.argv[1]})
    for backend in (name for name in BACKENDS if name in wanted):
        stem = f"ggml-{backend.lower()}"
        if not any(name.startswith((f"lib{stem}.", f"{stem}.")) for name in there):
            print(f"llama-cpp-python was built without {backend}", file=sys.stderr)
            return 1
    if "--load" in sys.argv[2:]:
        try:
            ctypes.CDLL(
                str(next(f for f in libraries.iterdir() if re.fullmatch(r"(lib)?llama\.(so|dylib|dll)", f.name)))
            )
        except (OSError, StopIteration) as e:
            print(f"llama-cpp-python cannot be loaded: {e}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
