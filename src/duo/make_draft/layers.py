"""Which layers a draft can do without: found greedily by how often the draft is right without them.

Leaving out layers for a draft is self-speculation (Draft & Verify, arXiv 2309.08168). A layer is tried without writing
a file for each trial: with zeros in the matrices that add to the residual, a layer's output is its input.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from duo.models.header import Header, TensorInfo, read_header

# What a layer adds to the residual. gguf-py's names (gguf/constants.py).
_ADDS = re.compile(
    r"\.(attn_output|ffn_down|ffn_down_(exps|shexp|chexps)|ssm_out|shortconv\.out_proj|time_mix_output|channel_mix_value)"
    r"\.(weight|bias)$"
)
# Layers that pass on more than one residual, or scale it.
_NO_RESIDUAL = re.compile(r"altup|laurel|hc_|hyper|layer_out(put)?_scale|per_layer|inp_gate")
# Architectures in which a layer's work depends on its number or on the number of layers (llama.cpp, src/models): no
# RoPE in every n-th layer, loops over the layers, a residual or a scale of blocks of layers.
_NUMBERED = frozenset(
    ("afmoe", "exaone-moe", "exaone4", "hrm_text", "kimi-k3", "llama4", "nanbeige", "rwkv6", "smallthinker", "smollm3")
)
N_TRIED = 6  # layers in a round after the first: those that cost least before
N_WORSE = 2  # rounds without a better draft, after which the search ends
LIKELY = 0.7  # share of the depth at which the search begins
STEPS = (2, 3, 4)  # every n-th layer is left out
_CHUNK = 1 << 24  # bytes


@dataclass(frozen=True)
class Score:
    """How a draft does on texts of the target."""

    by_position: tuple[float, ...]  # share of right guesses, if those before are right
    mean_length: float  # tokens per pass
    log_p: float  # mean log-probability of the target's token: tells equal ones apart

    @property
    def rank(self) -> tuple[float, float]:
        return round(self.mean_length, 6), self.log_p


def why_not(h: Header, n_layers: int) -> str:
    """Why no layer can be left out; empty: some can be. n_layers: without MTP layers."""
    kinds = [frozenset(_kind(t) for t in h.tensors if t.layer == i) for i in range(n_layers)]
    if n_layers < 3:
        return f"the target has {n_layers} layers, and the first and the last one stay"
    for key, value in h.values.items():
        is_of_layers = key.startswith(f"{h.architecture}.") and not key.startswith(f"{h.architecture}.rope.")
        if is_of_layers and isinstance(value, list) and len(value) == h.n_layer:
            return f"its header has a value for each layer ({key})"
    if h.architecture in _NUMBERED:
        return f"what a layer of {h.architecture} does depends on its number"
    if h.values.get(f"{h.architecture}.attention.sliding_window"):
        return "layers with and without a sliding window come in a fixed order"
    first = next((i for i, kind in enumerate(kinds) if kind == kinds[-1]), 0)
    if any(kind != kinds[-1] for kind in kinds[first:]):
        return "its layers are of several kinds, which come in a fixed order"
    if any(_NO_RESIDUAL.search(t.name) for t in h.tensors) or not any(_ADDS.search(t.name) for t in h.tensors):
        return f"duo does not know what a layer of {h.architecture} adds"
    return "" if droppable(h, n_layers) else "only one layer is like the last one"


def droppable(h: Header, n_layers: int) -> tuple[int, ...]:
    """Never the first and the last layer, and none of another kind than the last one (dense ones before experts)."""
    kinds = [frozenset(_kind(t) for t in h.tensors if t.layer == i) for i in range(n_layers)]
    return tuple(i for i in range(1, n_layers - 1) if kinds[i] == kinds[-1])


def _kind(t: TensorInfo) -> str:
    return t.name.split(".", 2)[2]


class SilencedCopy:
    """A copy of a model whose layers can be silenced one by one. It uses as much disk as the model."""

    def __init__(self, model: Path, copy: Path) -> None:
        """Raises OSError."""
        shutil.copyfile(model, copy)
        self.path = copy
        self._model = model
        self._silent: frozenset[int] = frozenset()
        self._tensors = [t for t in read_header(model).tensors if t.layer is not None and _ADDS.search(t.name)]

    def silence(self, layers: Sequence[int]) -> None:
        """Writes zeros into these layers, and the weights back into all others. Raises OSError."""
        silent = frozenset(layers)
        with self.path.open("r+b") as file, self._model.open("rb") as model:
            for t in self._tensors:
                if (t.layer in silent) == (t.layer in self._silent):
                    continue
                file.seek(t.offset)
                model.seek(t.offset)
                for begin in range(0, t.n_bytes, _CHUNK):
                    n = min(_CHUNK, t.n_bytes - begin)
                    # Zero bytes mean zeros in every ggml type.
                    file.write(bytes(n) if t.layer in silent else model.read(n))
        self._silent = silent


@dataclass(frozen=True)
class Trial:
    left_out: tuple[int, ...]  # ascending
    score: Score
    worth: float  # expected speed, as a multiple of plain decoding


class LayerSearch:
    """Chooses the layers to leave out."""

    def __init__(
        self,
        layers: Sequence[int],
        score: Callable[[tuple[int, ...]], Score],
        worth: Callable[[Score, tuple[int, ...]], float],
        *,
        ends: float,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """layers: that may be left out. score: of a draft without some. worth: its expected speed. ends: no trial
        begins after this moment of time.monotonic()."""
        self._layers = tuple(layers)
        self._score, self._worth, self._ends, self._progress = score, worth, ends, progress
        self.trials: list[Trial] = []

    def spread(self, n: int | None) -> tuple[int, ...] | None:
        """Layers that lie evenly: n of them, or every 2nd, 3rd or 4th, whichever is worth most. None: no time.
        Raises DuoError."""
        if n is not None:
            return tuple(self._layers[int((i + 0.5) * len(self._layers) / n)] for i in range(n))
        sets = dict.fromkeys(self._layers[step - 1 :: step] for step in STEPS)
        trials = [t for s in sets if s and (t := self._try(s, "layers that lie evenly")) is not None]
        return max(trials, key=lambda t: t.worth).left_out if trials else None

    def chosen(self, n: int | None) -> tuple[int, ...] | None:
        """n layers, or as many as pay: in each round the one without which the draft is best. If time is up before n
        are found, those follow that cost least in earlier rounds. None: there was no time for a trial.
        Raises DuoError."""
        path: list[Trial] = []
        # Layers behind the middle mostly cost least (ShortGPT, arXiv 2403.03853); time may be up before all are tried.
        order = sorted(self._layers, key=lambda layer: abs(layer - LIKELY * self._layers[-1]))
        while order and (n is None or len(path) < n):
            before = path[-1].left_out if path else ()
            tried: dict[int, Trial] = {}
            for layer in order[:N_TRIED] if path else order:
                what = f"{len(before)} layers are left out: is layer {layer} the next?"
                if (trial := self._try(tuple(sorted((*before, layer))), what)) is not None:
                    tried[layer] = trial
            if not tried:
                break
            ranked = sorted(tried, key=lambda layer: tried[layer].score.rank, reverse=True)
            path.append(tried[ranked[0]])
            # What was not tried in this round comes after what was, in the order of earlier rounds.
            order = ranked[1:] + [layer for layer in order if layer not in tried]
            if n is None and self._is_over(path):
                break
        if not path:
            return None
        if n is None:
            return max(path, key=lambda t: t.worth).left_out
        return tuple(sorted((*path[-1].left_out, *order[: n - len(path)])))

    def _is_over(self, path: Sequence[Trial]) -> bool:
        best = max(range(len(path)), key=lambda i: path[i].worth)
        return len(path) - 1 - best >= N_WORSE

    def _try(self, left_out: tuple[int, ...], what: str) -> Trial | None:
        """Measures a draft without these layers; None: no time is left."""
        if time.monotonic() >= self._ends:
            return None
        self._progress(what)
        score = self._score(left_out)
        self.trials.append(trial := Trial(left_out, score, self._worth(score, left_out)))
        return trial
