"""Drawn shapes, each of which stands for a word, and a projector that has learned the words for the demo target.

A picture of a shape becomes one row, about the embedding of its word. The projector is LLaVA's with random weights up
to its last matrix, which is fitted to drawings (ridge regression).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import dequantize
from gguf_files import BOOL, F32, STR, U32, Array, Value, write
from vision_models import png_of

from duo import Duo
from duo.gguf_tools.whole_file import CheckedGgufReader

SIDE, N_FEATURES, N_HIDDEN = 28, 192, 768  # pixels; numbers of a patch; of the projector
N_DRAWINGS, RIDGE = 200, 1.0  # of each shape, to learn from
# By the word: whether a point is inside. The middle is (0, 0), and shapes are about 1 wide.
SHAPES = {
    " king": lambda x, y: np.abs(x) + np.abs(y) < 0.8,
    " ship": lambda x, y: (y > 0) & (x**2 + y**2 < 0.7),
    " tree": lambda x, y: (y < 0.7) & (np.abs(x) < (y + 0.8) / 2),
    " house": lambda x, y: np.maximum(np.abs(x), np.abs(y)) < 0.6,
    " sun": lambda x, y: x**2 + y**2 < 0.45,
    " church": lambda x, y: np.minimum(np.abs(x), np.abs(y)) < 0.2,
    " star": lambda x, y: np.abs(np.hypot(x, y) - 0.6) < 0.18,
    " water": lambda x, y: np.abs(y - 0.35 * np.sin(4 * x)) < 0.2,
}


def drawn(word: str, rng: np.random.Generator) -> Array:
    """The word's shape at a place, of a size and in colours of its own: [SIDE, SIDE, 3] of 0 to 255."""
    at = np.linspace(-1.1, 1.1, SIDE, dtype=np.float32)
    x, y = np.meshgrid(at, at)
    dx, dy, size = *rng.uniform(-0.04, 0.04, 2), rng.uniform(0.96, 1.04)
    inside = SHAPES[word]((x - dx) / size, (y - dy) / size)
    paper, ink = rng.integers(215, 256, 3), rng.integers(0, 50, 3)
    return np.where(inside[..., None], ink, paper).astype(np.uint8)


def picture(word: str, seed: int) -> bytes:
    """A PNG file of a drawing that the projector has not learned from."""
    pixels = drawn(word, np.random.default_rng(10_000 + seed))
    return png_of(SIDE, SIDE, b"".join(b"\0" + row.tobytes() for row in pixels))


def learned_projector(to: Path, d: Duo) -> Path:
    """d: has the target, whose embeddings it reads."""
    reader = CheckedGgufReader(Path(d.target.path))
    found = next(t for t in reader.tensors if t.name == "token_embd.weight")
    embeddings = dequantize(found.data, found.tensor_type)
    rng = np.random.default_rng(0)
    patch = rng.standard_normal((N_FEATURES, 3, SIDE, SIDE), np.float32) / 30
    first = rng.standard_normal((N_HIDDEN, N_FEATURES), np.float32) / 10
    bias = rng.standard_normal(N_HIDDEN, np.float32)
    words = [d.tokenize(w, False) for w in SHAPES]
    assert all(len(ids) == 1 for ids in words), words
    hidden, wanted = [], []
    for word, ids in zip(SHAPES, words, strict=True):
        for _ in range(N_DRAWINGS):
            pixels = drawn(word, rng).astype(np.float32).transpose(2, 0, 1) / 127.5 - 1
            seen = np.tensordot(patch, pixels, 3)
            seen = (seen - seen.mean()) / np.sqrt(seen.var() + 1e-6)
            x = first @ seen + bias
            hidden.append(x / 2 * (1 + np.tanh(0.79788456 * (x + 0.044715 * x**3))))
            wanted.append(embeddings[ids[0]])
    h = np.array(hidden)
    last = np.linalg.solve(h.T @ h + RIDGE * np.eye(N_HIDDEN), h.T @ np.array(wanted)).T
    ones, zeros = np.ones(N_FEATURES, np.float32), np.zeros(N_FEATURES, np.float32)
    tensors = {
        "v.patch_embd.weight": patch,
        "v.position_embd.weight": zeros[None],
        "v.pre_ln.weight": ones,
        "v.pre_ln.bias": zeros,
        "mm.0.weight": first,
        "mm.0.bias": bias,
        "mm.2.weight": last.astype(np.float32),
        "mm.2.bias": np.zeros(embeddings.shape[1], np.float32),
    }
    # Its file must have a layer, which LLaVA does not compute: it takes the last but one.
    for name in ("ln1", "ln2"):
        tensors[f"v.blk.0.{name}.weight"], tensors[f"v.blk.0.{name}.bias"] = ones, zeros
    for name in ("attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down"):
        tensors[f"v.blk.0.{name}.weight"] = np.zeros((N_FEATURES, N_FEATURES), np.float32)
    sizes = {"image_size": SIDE, "patch_size": SIDE, "embedding_length": N_FEATURES, "block_count": 1,
             "feed_forward_length": N_FEATURES, "attention.head_count": 2,
             "projection_dim": embeddings.shape[1]}  # fmt: skip
    header: dict[str, Value] = {
        "general.architecture": (STR, "clip"),
        "clip.has_vision_encoder": (BOOL, True),
        "clip.projector_type": (STR, "mlp"),
        "clip.vision.attention.layer_norm_epsilon": (F32, 1e-6),
        "clip.vision.image_mean": (F32, [0.5] * 3),
        "clip.vision.image_std": (F32, [0.5] * 3),
        **{f"clip.vision.{name}": (U32, n) for name, n in sizes.items()},
    }
    return write(to, header, [(n, t, None) for n, t in tensors.items()])
