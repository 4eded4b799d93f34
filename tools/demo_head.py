"""Trains an EAGLE-3 head for the demo target: python tools/demo_head.py docs.json.xz build/demo-eagle3.gguf [options].

docs.json.xz: [kind, title, text] of the documents that the demo pair was made from. Those that were held out then are
left out here, too: the prompts of the measurements come from them. More options go to `duo train-head`.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

from duo.cli.main import main
from duo.models.demo import demo_pair

HELD_OUT = (5, 37)  # documents whose index leaves this remainder
# 192 wide, 2048 tokens: 0.95 M multiply-adds a guess, 0.15 of the target's.
OPTIONS = "--n-embd 192 --n-head 3 --n-ff 512 --rows 2048 --layers 1,2,3 --steps 5 --length 256 --lr 2e-3"


def divided(docs: Path) -> tuple[list[str], list[str]]:
    """The documents to learn from, and those that were held out."""
    with lzma.open(docs) as file:
        texts = [text for _, _, text in json.load(file)]
    held_out = texts[HELD_OUT[0] :: HELD_OUT[1]]
    return [text for i, text in enumerate(texts) if i % HELD_OUT[1] != HELD_OUT[0]], held_out


def write_data(texts: list[str], data: Path) -> Path:
    """As `duo train-head` reads them."""
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    return data


def run(docs: Path, out: Path, more: list[str]) -> int:
    data = write_data(divided(docs)[0], out.with_suffix(".jsonl"))
    target, _ = demo_pair()
    return main(["train-head", "-m", str(target), "--data", str(data), "-o", str(out), *OPTIONS.split(), *more])


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
