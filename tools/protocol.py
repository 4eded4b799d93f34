"""Generates the Python code of src/duo/remote/wire.proto, or checks that it is current.

python tools/protocol.py            writes the code
python tools/protocol.py --check    exit code 1 if it does not match wire.proto
"""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

SOURCE = Path(__file__).resolve().parent.parent / "src"
PROTO = "duo/remote/wire.proto"
MADE = ("wire_pb2.py", "wire_pb2.pyi")


def make(folder: Path) -> int:
    """Writes the two files below `folder`. Returns protoc's exit code."""
    outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi")]
    return int(protoc.main(["protoc", f"-I{SOURCE}", *outputs, PROTO]))


def main() -> int:
    if "--check" not in sys.argv[1:]:
        return make(SOURCE)
    with tempfile.TemporaryDirectory() as folder:
        if code := make(Path(folder)):
            return code
        for name in MADE:
            committed, made = (base / "duo/remote" / name for base in (SOURCE, Path(folder)))
            if not committed.exists() or committed.read_bytes() != made.read_bytes():
                print(f"{committed} does not match wire.proto; run: make protocol", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
