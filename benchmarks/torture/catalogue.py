"""Pairs of models and texts that the faults are about, and the right texts, made once in plain mode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duo import Duo
from duo.models.demo import demo_pair
from duo.placement import kernels

# Duo's kernels give the same bits at every width, stock ones only under strict.
EXACT: dict[str, Any] = {"cpu_kernels": "duo"} if kernels.available() else {"cpu_kernels": "stock", "strict": True}
EXACT_ARGS = ["--cpu-kernels", EXACT["cpu_kernels"], *(["--strict"] if "strict" in EXACT else [])]
N_CTX = 512
N_LONG = 160

PROMPTS = (
    "Once upon a time",
    "The king said to his daughter that",
    "In the forest lived an old man who",
    "One day the dog",
)
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.8, "seed": 3},
    {"temperature": 1.1, "seed": 9, "top_k": 20, "repeat_penalty": 1.2},
)


@dataclass(frozen=True)
class Right:
    """A text of N_LONG tokens; every shorter one is its beginning."""

    prompt: str
    options: Mapping[str, Any]
    tokens: tuple[int, ...]
    pieces: tuple[str, ...]  # the text of each token

    @property
    def is_plain(self) -> bool:
        """Whether every token is whole characters."""
        return "".join(self.pieces).isascii() and all(self.pieces)

    def text(self, n: int = N_LONG) -> str:
        return "".join(self.pieces[:n])

    def given(self, n: int = N_LONG) -> dict[str, Any]:
        """Options of the text with n tokens."""
        return {**self.options, "max_tokens": n, "ignore_eos": True}

    def args(self, n: int = N_LONG) -> list[str]:
        """The same for the program."""
        names = {"temperature": "--temp", "seed": "--seed", "top_k": "--top-k", "repeat_penalty": "--repeat-penalty"}
        found = ["-p", self.prompt, "-n", str(n), "--ignore-eos"]
        for name, value in self.options.items():
            found += [names[name], str(value)]
        return found


@dataclass(frozen=True)
class Models:
    """A target, and what may draft for it."""

    name: str
    target: Path
    drafts: tuple[Path | None, ...]


def make_models(folder: Path) -> dict[str, Models]:
    """The demo pair, a draft that is never right, a target with random weights, and a recurrent one."""
    from tests.gguf_files import tiny_mamba

    from duo.gguf_tools.random_model import randomize

    target, draft = demo_pair()
    useless, wild, mamba = folder / "useless.gguf", folder / "wild.gguf", folder / "mamba.gguf"
    if not mamba.exists():
        randomize(draft, useless, seed=1)
        randomize(draft, wild, seed=2)
        tiny_mamba(draft, mamba)
    found = [
        Models("demo", target, (draft, draft, target.with_name("duo-demo-eagle3-q8_0.gguf"), useless, None)),
        Models("wild", wild, (wild, draft, None)),
        Models("recurrent", mamba, (mamba, draft, None)),
    ]
    return {m.name: m for m in found}


def make_rights(models: Mapping[str, Models], to: Path) -> None:
    """Writes the right texts of all models, in plain mode, without a draft."""
    found: dict[str, list[Any]] = {}
    for m in models.values():
        with Duo(m.target, n_ctx=N_CTX, **EXACT) as d:
            for prompt in PROMPTS:
                for options in SAMPLINGS:
                    given = {**options, "max_tokens": N_LONG, "ignore_eos": True, "mode": "plain"}
                    with d.stream(prompt, **given) as s:
                        chunks = [c for c in s if c.token is not None]
                    tokens, pieces = [c.token for c in chunks], [c.text for c in chunks]
                    found.setdefault(m.name, []).append([prompt, options, tokens, pieces])
    to.write_text(json.dumps(found), "utf-8")


def read_rights(path: Path) -> dict[str, list[Right]]:
    raw = json.loads(path.read_text("utf-8"))
    return {
        name: [Right(prompt, options, tuple(tokens), tuple(pieces)) for prompt, options, tokens, pieces in texts]
        for name, texts in raw.items()
    }
