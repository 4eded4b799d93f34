"""Computes from a header how much memory a model needs, and where: weights, cache and working memory."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from duo.models.header import Header
from duo.placement.cache import KEEP_HEADS, CacheShape, cache_bytes, padded
from duo.placement.states import N_MARKS, keeps_states, n_sequences, n_states, state_bytes
from duo.support.context import N_CTX_DEFAULT

# Cells that the engine adds to the context (csrc/llama/context_shape.cpp).
SPARE_TARGET, SPARE_STATE, SPARE_DRAFT = 65, 1, 513
N_TEXTS_MOST = 4  # of -np auto, as in llama-server
# Scores that each thread of duo's attention keeps for each cell (n_rows_alone in csrc/cpu/attention.cpp).
N_SCORES, SCORE = 32, 4


@dataclass(frozen=True)
class Need:
    """Bytes of the parts of a model."""

    weights: tuple[int, ...]  # by layer; only those that a device can hold
    cache: tuple[int, ...]  # by layer; in the same place as the layer
    output: int  # the output matrix, which counts as one more layer
    host: int  # embeddings, tensors that -ot keeps on the CPU, and states that a recurrent target keeps of its prompts
    work: int  # for each place that computes layers
    logits: int  # for the place of the output matrix, instead of `work` if `work` is less
    # The largest matrix of each layer, which is copied to a device that computes prompts; empty: none does.
    matrix: tuple[int, ...] = ()
    kept_matrix: int = 0  # the same of what -ot keeps on the CPU, whatever layer it is of
    host_cache: int = 0  # on the CPU, wherever the layers are
    marks: int = 0  # the part of host that is the states of prompts

    @property
    def n_all(self) -> int:
        """Number of layers as -ngl counts them, with the output matrix as one."""
        return len(self.weights) + 1

    @property
    def total_weights(self) -> int:
        return sum(self.weights) + self.output + self.host

    @property
    def total_cache(self) -> int:
        return sum(self.cache) + self.host_cache

    @property
    def total(self) -> int:
        """The sum if everything is in one place."""
        return self.total_weights + self.total_cache + max(self.work, self.logits)


@dataclass(frozen=True)
class Places:
    """Bytes in each place."""

    devices: tuple[int, ...]
    fixed: tuple[int, ...]  # the part that is exact: weights and cache
    host: int
    host_cache: int = 0  # part of host, with the states of prompts


def cells(n_ctx: int, *, draft: bool, keeps_states: bool = False) -> int:
    """Cells of the cache for a context of n_ctx tokens."""
    return padded(n_ctx + (SPARE_DRAFT if draft else SPARE_STATE if keeps_states else SPARE_TARGET))


def context(n_ctx: int | None, n_train: int, n_target: int | None = None) -> int:
    """Tokens of the context that the engine chooses. n_target: for a draft, the context of the target."""
    if n_target is None:
        return n_ctx or (min(n_train, N_CTX_DEFAULT) if n_ctx is None else n_train)
    return n_ctx or min(n_train, n_target)


def most_texts(headers: Sequence[Header], contexts: Sequence[int]) -> int:
    """Whole contexts that one cache may hold, whatever memory there is. contexts: tokens, of each model.

    A model with factors for long texts (LongRoPE) takes them by the size of
    the cache, and would write another text with a larger one.
    """
    n = N_TEXTS_MOST
    for h, n_ctx in zip(headers, contexts, strict=True):
        if h.architecture == "plamo2":  # its graph of several texts is wrong (llama.cpp: models/plamo2.cpp)
            return 1
        if any("rope_factors_long" in t.name for t in h.tensors):
            short = h.values.get(f"{h.architecture}.rope.scaling.original_context_length", 0)
            if isinstance(short, int) and n_ctx <= short:
                n = min(n, max(1, (short - SPARE_DRAFT) // max(1, n_ctx)))
    return n


def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except re.error:  # the engine will report it
        return None


def kept_on_cpu(h: Header, overrides: Sequence[tuple[str, str]]) -> set[str]:
    """The names of the tensors that these options put on the CPU, whatever layer they are of."""
    choices = [(p, memory) for p, memory in ((_pattern(text), memory) for text, memory in overrides) if p is not None]
    return {t.name for t in h.tensors if next((memory for p, memory in choices if p.search(t.name)), "") == "CPU"}


@dataclass
class _WeightBytes:
    """Bytes of the weights that are loaded."""

    layers: list[int]  # of each layer, without what -ot keeps on the CPU
    matrix: list[int]  # the largest matrix of each layer
    output: int = 0
    host: int = 0
    kept_matrix: int = 0  # the largest matrix of a layer that -ot keeps on the CPU


def _first_head(h: Header) -> int:
    """The first layer that a target does not compute."""
    return h.n_trunk if h.n_mtp else h.n_layer


def _weights(h: Header, overrides: Sequence[tuple[str, str]], *, mtp: bool) -> _WeightBytes:
    """overrides, mtp: as in need_of."""
    on_cpu = kept_on_cpu(h, overrides)
    total = _WeightBytes([0] * h.n_layer, [0] * h.n_layer)
    heads, embedding, has_output = _first_head(h), 0, False
    for t in h.tensors:
        layer = t.layer
        if layer is not None and layer >= heads and h.has_trunk and not mtp:
            continue  # not loaded
        if t.name in on_cpu:
            total.host += t.n_bytes
            total.kept_matrix = max(total.kept_matrix, t.n_bytes if layer is not None else 0)
        elif layer is not None and layer < h.n_layer:
            total.layers[layer] += t.n_bytes
            total.matrix[layer] = max(total.matrix[layer], t.n_bytes)
        elif t.name.startswith("output"):
            total.output += t.n_bytes
        else:
            total.host += t.n_bytes
        embedding = t.n_bytes if t.name == "token_embd.weight" else embedding
        has_output = has_output or t.name == "output.weight"
    if not has_output:
        total.output += embedding  # tied to the embeddings: a device needs its own copy
    return total


def need_of(
    h: Header,
    n_ctx: int,
    *,
    draft: bool = False,
    type_k: str = "f16",
    type_v: str = "f16",
    n_ubatch: int = 512,
    flash_attn: bool = True,
    overrides: Sequence[tuple[str, str]] = (),
    n_contexts: int = 1,
    n_parallel: int = 1,
    guesses: bool = False,
    mtp: bool = False,
    shared: bool = False,
    helped: bool = False,
    n_marks: int = N_MARKS,
    offload_kqv: bool = True,
    attention_threads: int = 0,
) -> Need:
    """n_ctx: tokens; the cache has n_contexts times as many. overrides: (pattern, memory) from -ot, of which the first
    that fits counts; tensors for the CPU are the host's. mtp: a target's MTP layers are loaded; a draft is the MTP
    layers of the file. shared: the weights are the target's.

    n_parallel: texts at once, of each of which a target keeps n_marks states. guesses: a draft model guesses for it.
    helped: a device may compute prompts with weights of the CPU. offload_kqv: the cache of a layer is where the layer
    is; or else on the CPU. attention_threads: of duo's attention; 0: llama.cpp's computes.

    Weights and cache are exact: layers with a sliding window keep the whole context, too, so that guesses can be taken
    back. Working memory is an estimate.
    """
    weights = _weights(h, overrides, mtp=mtp) if not shared else _WeightBytes([0] * h.n_layer, [0] * h.n_layer)
    heads = _first_head(h)
    of_mtp = draft and (mtp or not h.has_trunk)
    n_cells = cells(n_ctx * n_contexts, draft=draft, keeps_states=keeps_states(h))
    n_copies = n_states(h, draft=draft, guesses=guesses, n_parallel=n_parallel)
    n_texts = n_sequences(h, draft=draft, guesses=guesses, n_parallel=n_parallel)
    shape = CacheShape(n_cells, type_k, type_v, flash_attn=flash_attn, n_sequences=n_texts, n_states=n_copies)
    attention_cache = cache_bytes(h, shape, mtp=of_mtp)
    caches = range(heads, h.n_layer) if of_mtp else range(h.n_layer if h.architecture in KEEP_HEADS else heads)
    states = [0] * h.n_layer if of_mtp else state_bytes(h)  # MTP layers only attend
    by_layer = [
        (n if i in caches else 0) + n_copies * state
        for i, (n, state) in enumerate(zip(attention_cache, states, strict=True))
    ]
    marks = 0 if draft else n_marks * n_parallel * sum(states)
    # The largest live numbers of a row (measured with llama.cpp's graph of a llama): in attention, and between the
    # matrices of the feed-forward part. Flash attention keeps no scores, and its mask has half precision.
    attention = 4 * 4 * h.n_embd + (2 * n_cells if flash_attn else 4 * (h.n_head + 1) * n_cells)
    forward = 4 * (2 * h.n_ff + 3 * h.n_embd) + 2 * n_cells
    return Need(
        weights=tuple(weights.layers),
        cache=tuple(by_layer) if offload_kqv else (0,) * h.n_layer,
        output=weights.output,
        host=weights.host + marks,
        work=n_ubatch * max(attention, forward) + attention_threads * N_SCORES * SCORE * n_cells,
        logits=n_ubatch * 4 * (h.n_vocab + 2 * h.n_embd),
        matrix=tuple(weights.matrix) if helped else (),
        kept_matrix=weights.kept_matrix if helped else 0,
        host_cache=0 if offload_kqv else sum(by_layer),
        marks=marks,
    )


def places(need: Need, n_gpu_layers: int, shares: Sequence[float]) -> Places:
    """Bytes on each device and on the CPU if the devices hold n_gpu_layers layers. The split is libllama's: the last
    layers, in the order of the devices, by `shares`."""
    n = min(n_gpu_layers, need.n_all) if shares else 0
    first = need.n_all - n
    total = sum(shares) or 1.0
    ends = [x / total for x in accumulate(shares)]
    fixed, host, last = [0] * len(shares), need.host + need.host_cache, need.n_all - 1
    used, has_output = [False] * len(shares), [False] * len(shares)
    for i in range(need.n_all):
        size = need.output if i == last else need.weights[i] + need.cache[i]
        if i < first:
            host += size
            continue
        device = min(bisect_right(ends, (i - first) / n), len(shares) - 1)
        fixed[device] += size
        used[device] = True
        has_output[device] = i == last
    work = [
        (max(need.work, need.logits) if out else need.work) if yes else 0
        for yes, out in zip(used, has_output, strict=True)
    ]
    if need.matrix and shares and (first > 0 or need.kept_matrix):
        # llama.cpp gives the CPU's share of a prompt to the first device.
        copied = max([need.kept_matrix, *need.matrix[:first], *need.cache[:first]])
        work[0] = max(work[0], need.work + copied, 0 if n else need.logits + need.output)
    devices = tuple(f + w for f, w in zip(fixed, work, strict=True))
    computes = n < need.n_all or bool(need.host_cache)
    host += max(need.work, need.logits if n == 0 else 0) if computes else 0
    return Places(devices, tuple(fixed), host, need.host_cache + need.marks + sum(need.cache[:first]))


def most_layers(need: Need, room: Sequence[int], shares: Sequence[float] | None = None) -> int:
    """The largest n_gpu_layers that fits into the room of each device. shares: by default in proportion to the room."""
    by = [max(0, r) for r in room] if shares is None else shares
    if not any(by):
        return 0
    for n in range(need.n_all, 0, -1):
        if all(b <= r for b, r in zip(places(need, n, by).devices, room, strict=True)):
            return n
    return 0
