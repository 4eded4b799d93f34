"""Targets and their drafts for measure_tool_calls.py: every kind of draft that can be had without a download."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import real_models  # tools/real_models.py
from dflash_models import BlockShape, random_head  # tests/dflash_models.py
from mtp_models import foreseeing  # tests/mtp_models.py
from other_vocabularies import thinned  # tests/other_vocabularies.py
from tiny_models import tiny  # tests/tiny_models.py

from duo.benchmark.prove.cases import NGRAMS, Guesses
from duo.cli.prove_pair import Load, load_of_file
from duo.models.demo import demo_head, demo_pair

NO_MODEL = Load((NGRAMS,), spec_type=("ngram-map-k",), with_draft=False)
MTP = Load((Guesses("own MTP layers"),), spec_type=("draft-mtp",))


@dataclass(frozen=True)
class Drafted:
    """A target, and what guesses for it."""

    name: str
    target: str
    loads: tuple[Load, ...]

    def only(self, names: Sequence[str]) -> Drafted:
        """With these guesses alone. Raises SystemExit: there are none of a name."""
        known = {g.name for load in self.loads for g in load.guesses}
        if wrong := [name for name in names if name not in known]:
            raise SystemExit(f"{self.name} has no guesses {', '.join(wrong)}; it has {', '.join(sorted(known))}")
        left = (replace(load, guesses=tuple(g for g in load.guesses if g.name in names)) for load in self.loads)
        return replace(self, loads=tuple(load for load in left if load.guesses))


def _named(name: str, path: Path | str, *, with_ngrams: bool = True) -> Load:
    """A draft of another kind than its file says."""
    load = load_of_file(str(path))
    guesses = tuple(Guesses(g.name.replace("draft model", name), g.modes, g.options) for g in load.guesses)
    return Load(guesses if with_ngrams else guesses[:1], load.draft)


def demo(folder: Path) -> Drafted:
    """The demo pair, its EAGLE-3 head, a copy of its draft with other and fewer tokens, DFlash and DSpark heads with
    random weights."""
    target, draft = demo_pair()
    dflash = random_head(target, folder / "dflash.gguf", BlockShape(n_draft_vocab=2048))
    dspark = random_head(target, folder / "dspark.gguf", BlockShape(n_rank=32))
    loads = (
        load_of_file(str(draft)),
        _named("draft of another vocabulary", thinned(draft, folder / "thinned.gguf", 0.3), with_ngrams=False),
        load_of_file(str(demo_head())),
        load_of_file(str(dflash)),
        load_of_file(str(dspark)),
        NO_MODEL,
    )
    return Drafted("demo", str(target), loads)


def mtp(folder: Path) -> Drafted:
    """Random weights and layers that guess right where no grammar interferes: GLM-4's architecture."""
    path = foreseeing("glm4moe", demo_pair()[1], folder / "glm4moe.gguf")
    return Drafted("mtp", str(path), (MTP, NO_MODEL))


def mla(folder: Path) -> Drafted:
    """The same with a compressed cache: DeepSeek V3's architecture."""
    path = foreseeing("deepseek2", demo_pair()[1], folder / "deepseek2.gguf")
    return Drafted("mla", str(path), (MTP, NO_MODEL))


def recurrent(folder: Path) -> Drafted:
    """Random weights, a recurrent state, and MTP layers: Qwen3.5's architecture."""
    path = tiny("qwen35", demo_pair()[1], folder / "qwen35.gguf", n_mtp=1)
    return Drafted("recurrent", str(path), (MTP,))


def smollm2(_: Path) -> Drafted:
    """Two published models with different vocabularies."""
    gemma = _named("draft of another vocabulary", _real("gemma3-270m-q4_k_m"), with_ngrams=False)
    return Drafted("smollm2", _real("smollm2-135m-q4_1"), (gemma, NO_MODEL))


def qwen(_: Path) -> Drafted:
    """A published pair, and a published draft with another vocabulary."""
    other = _named("draft of another vocabulary", _real("smollm2-135m-q4_1"), with_ngrams=False)
    pair = load_of_file(_real("qwen2.5-coder-0.5b-q4_k_m"))
    return Drafted("qwen", _real("qwen2.5-coder-1.5b-q4_k_m"), (pair, other, NO_MODEL))


def _real(name: str) -> str:
    """Of `make models`."""
    return str(real_models.MODELS[name].path)


PAIRS: dict[str, Callable[[Path], Drafted]] = {f.__name__: f for f in (demo, mtp, mla, recurrent, smollm2, qwen)}
