"""Bytes of the cache of attention, by layer, from a header, as llama.cpp makes it (llama-model.cpp: create_memory)."""

from __future__ import annotations

from dataclasses import dataclass

from duo.models.header import Header
from duo.placement.states import COMPRESSED

STEP = 256  # cells: caches are made in such steps
_RATIOS = (4, 128)  # tokens of which COMPRESSED makes one key; layers with the first one have an index, too
# Numbers of a block, and its bytes. gguf has the same, but imports numpy, which takes time at every start.
BLOCKS = {
    "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18), "q4_1": (32, 20),
    "iq4_nl": (32, 18), "q5_0": (32, 22), "q5_1": (32, 24),
}  # fmt: skip
_FLOAT = 4  # bytes: what compresses keys is not quantised

KEEP_HEADS = ("bailingmoe3",)  # a target's cache has room for its MTP layers, too, although nothing is kept there
# Encoders, and models that write by diffusion.
NO_CACHE = frozenset({
    "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert",
    "gemma-embedding", "wavtokenizer-dec", "dream", "llada", "llada-moe", "rnd1",
})  # fmt: skip
# Architectures that keep an index of their keys, of one head.
_INDEXED = ("deepseek32", "glm-dsa", "hy_v4", "dots3note", "minimax-m3", "qwen4exp", "glm5-next")


@dataclass(frozen=True)
class CacheShape:
    """What the engine asks for."""

    n_cells: int
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: bool = True
    n_sequences: int = 1  # counts for COMPRESSED only, as the next one
    n_states: int = 1  # copies of what compresses keys


def bytes_of(n: int, cache_type: str) -> int:
    """Bytes of n numbers in a cache of this type."""
    n_block, n_bytes = BLOCKS[cache_type]
    return n * n_bytes // n_block


def padded(n_cells: int) -> int:
    return -(-n_cells // STEP) * STEP


def cache_bytes(h: Header, shape: CacheShape, *, mtp: bool = False) -> tuple[int, ...]:
    """Of each layer. mtp: of a context for the MTP layers, which only attend."""
    if h.architecture in NO_CACHE:
        return (0,) * h.n_layer
    if h.architecture == COMPRESSED and not mtp:
        return _compressed_bytes(h, shape)
    widths = [_widths(h, i) for i in range(h.n_layer)]
    if not shape.flash_attn:  # values are transposed then, and all layers have room for the widest ones
        widest = max((v for _, v in widths), default=0)
        widths = [(k, widest if v else 0) for k, v in widths]
    indexed = _indexed_layers(h)
    n_index = _index_bytes(h, shape) if indexed else 0
    n_loops = max(1, _number(h, "num_loops"))  # layers that are computed several times, each time with other cells
    return tuple(
        shape.n_cells
        * (n_loops * (bytes_of(k, shape.type_k) + bytes_of(v, shape.type_v)) + (n_index if i in indexed else 0))
        for i, (k, v) in enumerate(widths)
    )


def _number(h: Header, key: str) -> int:
    """A number of the header by its key without the architecture; 0: there is none."""
    value = h.values.get(f"{h.architecture}.{key}", 0)
    return value if isinstance(value, int) else 0


def _widths(h: Header, i: int) -> tuple[int, int]:
    """Numbers that a cell of layer i has of keys and of values."""
    n = h.n_head_kv[i] if i < _first_shared(h) else 0
    k, v = h.key_length, h.value_length
    # Heads of layers with a sliding window may have another length.
    pattern = h.values.get(f"{h.architecture}.attention.sliding_window_pattern")
    if isinstance(pattern, list) and i < len(pattern) and pattern[i]:
        k = _number(h, "attention.key_length_swa") or k
        v = (_number(h, "attention.value_length_swa") or v) if v else 0
    return n * k, n * v


def _first_shared(h: Header) -> int:
    """The first layer that uses the cache of an earlier one, as do those behind it."""
    if h.architecture == "gemma3n":
        return 20  # llama.cpp: models/gemma3n.cpp
    return h.n_layer - (_number(h, "attention.shared_kv_layers") if h.architecture == "gemma4" else 0)


def _indexed_layers(h: Header) -> frozenset[int]:
    if h.architecture not in _INDEXED or not _number(h, "attention.indexer.key_length"):
        return frozenset()
    layers = frozenset(i for i in range(h.n_trunk) if h.n_head_kv[i])
    if h.architecture == "hy_v4" and not _number(h, "attention.indexer.top_k"):
        return frozenset()
    if h.architecture == "minimax-m3":
        return frozenset(i for i in layers if i >= _number(h, "leading_dense_block_count"))
    if h.architecture in ("deepseek32", "qwen4exp"):
        return layers
    kinds = h.values.get(f"{h.architecture}.attention.indexer.types")
    if isinstance(kinds, list):
        return frozenset(i for i in layers if i < len(kinds) and kinds[i])
    if h.architecture == "glm-dsa" and h.n_ctx_train >= 1 << 20:  # GLM-5.2: models/glm-dsa.cpp
        return frozenset(i for i in layers if i < 2 or i % 4 == 2)
    return layers


def _index_bytes(h: Header, shape: CacheShape) -> int:
    """Of a cell."""
    n = _number(h, "attention.indexer.key_length")
    if h.architecture == "glm5-next" and _number(h, "attention.indexer.kpool"):
        n *= 3  # a gate and a pooled value for each key
    with_values = h.value_length if h.architecture == "minimax-m3" else 0
    return bytes_of(n, shape.type_k) + bytes_of(with_values, shape.type_v)


def _compressed_bytes(h: Header, shape: CacheShape) -> tuple[int, ...]:
    """llama-kv-cache-dsv4.cpp: keys as they are, and compressed. Each text has cells of its own for a whole context."""
    ratios = h.values.get(f"{h.architecture}.attention.compress_ratios", [])
    n_index = _number(h, "attention.indexer.key_length")
    of_layers = []
    for i in range(h.n_layer):
        ratio = ratios[i] if isinstance(ratios, list) and i < len(ratios) else 0
        width = h.n_head_kv[i] * h.key_length
        n_bytes = shape.n_sequences * shape.n_cells * bytes_of(width, shape.type_k)
        if ratio in _RATIOS:
            indexed = ratio == _RATIOS[0]
            widths = (width, n_index) if indexed else (width,)
            n_keys = padded(-(-shape.n_cells // ratio))
            n_bytes += shape.n_sequences * n_keys * sum(bytes_of(w, shape.type_k) for w in widths)
            # Keys and their scores, of twice as many tokens and numbers where neighbouring groups overlap.
            overlap = 2 if indexed else 1
            numbers = (h.key_length, n_index) if indexed else (h.key_length,)
            n_bytes += shape.n_states * 2 * _FLOAT * overlap * ratio * sum(overlap * n for n in numbers)
        of_layers.append(n_bytes)
    return tuple(of_layers)
