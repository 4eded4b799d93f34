"""Models with the demo draft's weights and another vocabulary: the same texts under other ids, or fewer texts."""

from pathlib import Path

import numpy as np
from gguf_files import U32, Array, header_of, rewrite

N_SPECIAL = 5  # first tokens that keep their ids: no text, and ends
OF_TOKENS = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores")


def reordered(source: Path, to: Path, old_of_new: Array) -> Path:
    """The token that had the id old_of_new[i] has the id i."""
    put = {}
    header = header_of(source)
    for key in (k for k in OF_TOKENS if k in header):
        kind, values = header[key]
        put[key] = kind, [values[i] for i in old_of_new]
    put["llama.vocab_size"] = U32, len(old_of_new)
    by_token = ("token_embd.weight", "output.weight")
    return rewrite(source, to, put=put, weights=lambda name, data: data[old_of_new] if name in by_token else data)


def shuffled(source: Path, to: Path, seed: int = 1) -> Path:
    n = len(header_of(source)["tokenizer.ggml.tokens"][1])
    ids = np.arange(n)
    np.random.default_rng(seed).shuffle(ids[N_SPECIAL:])
    return reordered(source, to, ids)


def thinned(source: Path, to: Path, share: float, seed: int = 1) -> Path:
    """Without this share of the tokens of more than one character, so that words are spelled otherwise."""
    texts = header_of(source)["tokenizer.ggml.tokens"][1]
    rng = np.random.default_rng(seed)
    kept = [i for i, text in enumerate(texts) if i < N_SPECIAL or len(text) == 1 or rng.random() >= share]
    ids = np.array(kept)
    rng.shuffle(ids[N_SPECIAL:])
    return reordered(source, to, ids)
