"""Makes models with the cost of large ones from the demo pair: they write the demo pair's words.

    python -m benchmarks.gpu.shapes FOLDER 7b 13b 70b 1b 8b

Each file is made once. 70b takes 39 GB of disk.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from duo.models.demo import demo_pair


class Shape(NamedTuple):
    role: str
    size: str  # of the file
    type: str


# As many bytes as Llama models of these sizes have in these types.
SHAPES = {
    "7b": Shape("target", "7.2G", "q8_0"),
    "13b": Shape("target", "13.8G", "q8_0"),
    "70b": Shape("target", "39G", "q4_0"),
    "1b": Shape("draft", "1.3G", "q8_0"),
    "8b": Shape("draft", "8.5G", "q8_0"),
    # For a machine without such a GPU, to try the scripts.
    "tiny": Shape("target", "60M", "q8_0"),
    "tiny-draft": Shape("draft", "12M", "q8_0"),
}


def made(folder: Path, name: str) -> Path:
    """The file of this shape in the folder."""
    shape = SHAPES[name]
    to = folder / f"{name}.gguf"
    if not to.exists():
        folder.mkdir(parents=True, exist_ok=True)
        small = demo_pair()[0 if shape.role == "target" else 1]
        command = [sys.executable, "-m", "duo", "dev", "widen", str(small), "-o", str(to)]
        subprocess.run([*command, "--size", shape.size, "--type", shape.type], check=True)
    return to


if __name__ == "__main__":
    for wanted in sys.argv[2:]:
        print(made(Path(sys.argv[1]), wanted))
