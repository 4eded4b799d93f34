"""Which source of guesses would have guessed how much of real edits: the draft model, the text itself, or both.

    python -m benchmarks.measure_sources [--files 40] [--out FILE]

The texts are teacher-forced: an edited file is taken as what a target would write, and the file before the edit is the
prompt. Both versions come from packages of this Python: pip and setuptools carry older or newer copies of libraries
that are installed, too. A second set has no earlier version in the prompt, only the first half of the file. At each
place every source guesses a chain; a pass brings the right ones and one more token. Needs g++.
"""

from __future__ import annotations

import argparse
import difflib
import json
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import duo
from duo import _core
from duo.benchmark.bench.head import command_of
from duo.benchmark.doctor import options
from duo.models.demo import demo_pair

Counts = npt.NDArray[np.int64]

HERE = Path(__file__).parent
N_CHAIN = 8  # guesses of the draft model
N_SELF = 16  # of the text itself
N_CTX = 512  # of the demo draft
LIKE = (0.55, 0.97)  # similarity of two versions by lines
LONGEST = 24_000  # characters


def versions() -> Iterator[tuple[str, str, str]]:
    """Name, text before, text after."""
    site = Path(sysconfig.get_paths()["purelib"])
    seen: set[str] = set()
    for root in (site / "pip/_vendor", site / "setuptools/_vendor"):
        for old in sorted(root.rglob("*.py")):
            name = str(old.relative_to(root))
            new = site / name
            if name in seen or not new.is_file():
                continue
            seen.add(name)
            before, after = old.read_text("utf-8", "replace"), new.read_text("utf-8", "replace")
            if 2000 < len(after) < LONGEST and len(before) < LONGEST:
                same = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).ratio()
                if LIKE[0] < same < LIKE[1]:
                    yield name, before, after


def by_text(texts: list[tuple[int, list[int]]]) -> list[dict[str, Counts]]:
    """Right guesses at each place, by source, of each text."""
    with tempfile.TemporaryDirectory() as folder:
        tool = Path(folder) / "sources"
        csrc = HERE.parent / "csrc"
        subprocess.run(["g++", "-std=c++20", "-O2", f"-I{csrc}", HERE / "measure_sources.cpp",
                        csrc / "tree/ngram_index.cpp", "-o", tool], check=True)  # fmt: skip
        lines = "".join(f"{n} {' '.join(map(str, tokens))}\n" for n, tokens in texts)
        out = subprocess.run([tool], input=lines, text=True, capture_output=True, check=True).stdout.splitlines()
    n_sources = len(out) // len(texts)
    return [
        {(words := line.split())[0]: np.array(words[1:], np.int64) for line in out[i : i + n_sources]}
        for i in range(0, len(out), n_sources)
    ]


def by_draft(draft: _core.Probe, n_prompt: int, tokens: list[int]) -> Counts:
    """Right guesses of a chain at each place. The draft sees the last tokens that its context holds."""
    right = np.zeros(len(tokens), np.bool_)
    for first in range(n_prompt, len(tokens), N_CTX // 2):
        begin = max(0, first - N_CTX // 2)
        window = tokens[begin : first + N_CTX // 2]
        draft.decode(window)
        best = draft.logits().argmax(1)
        for i in range(first, begin + len(window)):
            right[i] = best[i - 1 - begin] == tokens[i]
    chains = np.zeros(len(tokens) + 1, np.int64)
    for i in range(len(tokens) - 1, -1, -1):
        chains[i] = min(N_CHAIN, chains[i + 1] + 1) if right[i] else 0
    return chains[n_prompt : len(tokens)]


def tokens_per_pass(right: Counts) -> float:
    """A text written from place to place; each pass brings the right guesses and one more."""
    i = n = 0
    while i < len(right):
        i += int(right[i]) + 1
        n += 1
    return len(right) / max(1, n)


def measure(draft: _core.Probe, texts: list[tuple[int, list[int]]]) -> dict[str, Any]:
    found: dict[str, list[tuple[float, float, int]]] = {}
    for (n_prompt, tokens), counts in zip(texts, by_text(texts), strict=True):
        sources = {"draft model": by_draft(draft, n_prompt, tokens), **counts}
        for name in ("ngram-simple", "ngram-map-k4v", "suffix-3"):
            sources[f"draft model + {name}"] = np.maximum(sources["draft model"], sources[name])
        for name, right in sources.items():
            found.setdefault(name, []).append((float((right > 0).mean()), tokens_per_pass(right), len(right)))
    weights = {name: np.array([n for *_, n in rows], np.float64) for name, rows in found.items()}
    return {
        name: {
            "guessed": round(float(np.average([r[0] for r in rows], weights=weights[name])), 3),
            "tokens_per_pass": round(float(weights[name].sum() / sum(n / per for _, per, n in rows)), 2),
        }
        for name, rows in found.items()
    }


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--files", type=int, default=40)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    chosen = list(versions())[: args.files]
    o = options(str(demo_pair()[1]), 1, [], N_CTX)
    o.n_batch = o.n_ubatch = N_CTX
    draft = _core.Probe(o, is_draft=True)
    edits, alone = [], []
    for _, before, after in chosen:
        prompt, text = draft.tokenize(before), draft.tokenize(after)
        edits.append((len(prompt), [*prompt, *text]))
        alone.append((len(text) // 2, text))
    found = {
        "command": command_of(sys.argv),
        "duo": duo.__version__,
        "files": [name for name, *_ in chosen],
        "tokens": sum(len(t) - n for n, t in edits),
        "edits": measure(draft, edits),
        "second halves": measure(draft, alone),
    }
    for kind in ("edits", "second halves"):
        print(f"\n{kind}\n| source | guessed | tokens a pass |\n|---|---|---|")
        for name, row in found[kind].items():
            print(f"| {name} | {row['guessed']:.3f} | {row['tokens_per_pass']:.2f} |")
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
