"""What a draft that does not see should read in a picture's place: python benchmarks/measure_pictures.py [--scenes 60].

The target is shown pictures and writes greedily. The draft then reads each text with the picture left out, with one
word in its place, or with that word once for each of the picture's rows, and the script counts how often its best guess
is the target's token. Two pairs: the tests' pair that sees (tests/drawn_scenes.py), whose draft has read captions
alone; and the demo pair with a projector that knows eight words (tests/drawn_shapes.py).

Then the pair that sees writes with a draft, in turns of four tokens: the small draft, and the target as its own draft
without and with a projector (--mmproj-draft). Counts, not times.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import drawn_scenes
import drawn_shapes

from duo import Duo, _core
from duo.benchmark.doctor import options
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

MARKER = "<__media__>"
BEGINNINGS = (
    "Then they saw the<__media__>, and the",
    "Once upon a time there was a<__media__> that",
    "He looked at the<__media__>.",
    "She had never seen such a<__media__>, and",
    "Behind the house was a<__media__>, which",
)
Case = tuple[str, bytes]  # prompt, picture


def scenes(n: int) -> Iterator[Case]:
    for seed in range(n):
        yield drawn_scenes.ASKED, drawn_scenes.fresh(seed)[1]


def shapes(n: int) -> Iterator[Case]:
    for i in range(n):
        word = list(drawn_shapes.SHAPES)[i % len(drawn_shapes.SHAPES)]
        yield BEGINNINGS[i % len(BEGINNINGS)], drawn_shapes.picture(word, i)


def forms(word: str) -> dict[str, Callable[[int], str]]:
    """What stands in the place of a picture of so many rows."""
    return {"left out": lambda n: "", "one word": lambda n: word, "a word for each row": lambda n: word * n}


def shares(d: Duo, draft: str, cases: list[Case], word: str, n_tokens: int) -> tuple[dict[str, float], int]:
    """Of right guesses, by form; and tokens."""
    probe = _core.Probe(options(draft, 1, [], 512), is_draft=True)
    right, n_all = dict.fromkeys(forms(word), 0), 0
    for prompt, picture in cases:
        r = d.generate(prompt, images=[picture], mode="plain", temperature=0, max_tokens=n_tokens)
        written = r.tokens
        n_rows = r.prompt_tokens - len(d.tokenize(prompt.replace(MARKER, "")))
        for name, form in forms(word).items():
            begun = d.tokenize(prompt.replace(MARKER, form(n_rows)))
            probe.decode([*begun, *written])
            guesses = probe.logits()[len(begun) - 1 : -1].argmax(1)
            right[name] += sum(int(g) == t for g, t in zip(guesses, written, strict=True))
        n_all += len(written)
    return {name: n / n_all for name, n in right.items()}, n_all


def verified(draft: Path, cases: list[Case], **more: Any) -> tuple[float, int]:
    """The share of right guesses among those that were verified, and their number."""
    right = n_all = 0
    o: dict[str, Any] = {"n_ctx": 256, "n_ctx_draft": 256, "n_threads": 1, "n_threads_draft": 1, "always": True, **more}
    with SwitchedDuo(drawn_scenes.TARGET, draft, mmproj=drawn_scenes.PROJECTOR, **o) as d:
        for prompt, picture in cases:
            r = d.generate(prompt, images=[picture], mode="sync", n_draft=4, temperature=0, max_tokens=60)
            right += r.timings["draft_n_accepted"]
            n_all += r.timings["draft_n"]
    return right / n_all, n_all


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--scenes", type=int, default=60)
    p.add_argument("-n", type=int, default=60)
    args = p.parse_args()
    rows = []
    seeing = {"mmproj": str(drawn_scenes.PROJECTOR), "n_ctx": 256, "n_threads": 1}
    with Duo(str(drawn_scenes.TARGET), **seeing) as d:
        rows.append(("scenes", *shares(d, str(drawn_scenes.DRAFT), [*scenes(args.scenes)], " picture", args.n)))
    target, draft = map(str, demo_pair())
    with tempfile.TemporaryDirectory() as folder, Duo(target, vocab_only=True) as vocabulary:
        file = drawn_shapes.learned_projector(Path(folder, "shapes.gguf"), vocabulary)
        with Duo(target, mmproj=str(file), n_ctx=512, n_threads=1) as d:
            rows.append(("shapes", *shares(d, draft, [*shapes(args.scenes)], " picture", args.n)))
    print("| pictures | tokens | " + " | ".join(forms("")) + " |\n|---|---|" + "---|" * len(forms("")))
    for name, found, n in rows:
        print(f"| {name} | {n} | " + " | ".join(f"{share:.1%}" for share in found.values()) + " |")
    print("\n| draft | reads | verified guesses | right |\n|---|---|---|---|")
    for name, draft, sees in (
        ("small", drawn_scenes.DRAFT, False),
        ("the target itself", drawn_scenes.TARGET, False),
        ("the target itself", drawn_scenes.TARGET, True),
    ):
        more = {"mmproj_draft": drawn_scenes.PROJECTOR} if sees else {}
        share, n = verified(draft, [*scenes(args.scenes)], **more)
        print(f"| {name} | {'words and pictures' if sees else 'words'} | {n} | {share:.1%} |")


if __name__ == "__main__":
    main()
