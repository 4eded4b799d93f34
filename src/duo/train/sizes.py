"""Sizes of targets, and the sizes of heads and drafts that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from duo.errors import BadValueError
from duo.models.head import Head
from duo.options.train import DraftOptions, HeadOptions
from duo.train.target_file import ModelFile

N_LENGTH_MOST = 2048
N_ROWS_MOST = 32000
N_DRAFT_EMBD_MOST = 1024


@dataclass(frozen=True)
class TargetShape:
    """What training needs to know of a target."""

    name: str
    n_embd: int
    n_layer: int
    n_head: int
    n_head_kv: int
    n_head_dim: int
    n_ff: int
    n_vocab: int
    n_ctx: int
    eps: float
    rope_base: float
    n_parameters: int
    n_bytes: int  # of the file

    @classmethod
    def of(cls, file: ModelFile) -> TargetShape:
        """Raises DuoError: the file cannot be read, or is a draft head."""
        h = file.header
        if Head.of(h) is not None:
            raise BadValueError(f"{file.path.name} is a draft head, which writes nothing alone; give a model")
        return cls(
            name=file.path.name,
            n_embd=h.n_embd,
            n_layer=h.n_trunk,
            n_head=h.n_head,
            n_head_kv=max(h.n_head_kv, default=0) or h.n_head,
            n_head_dim=h.key_length,
            n_ff=h.n_ff,
            n_vocab=h.n_vocab,
            n_ctx=h.n_ctx_train,
            eps=file.number("attention.layer_norm_rms_epsilon", 1e-5),
            rope_base=file.number("rope.freq_base", 10000.0),
            n_parameters=h.n_parameters,
            n_bytes=h.n_file_bytes,
        )

    @property
    def length(self) -> int:
        """Tokens of a text by default."""
        return min(self.n_ctx, N_LENGTH_MOST)


# Of Llama 3.1 at Q4_K_M, to plan for without a file.
LIKE = {
    "8b": TargetShape("an 8B target", 4096, 32, 32, 8, 128, 14336, 128256, 131072, 1e-5, 5e5, 8_030_261_248,
                      4_920_734_272),
    "70b": TargetShape("a 70B target", 8192, 80, 64, 8, 128, 28672, 128256, 131072, 1e-5, 5e5, 70_553_706_496,
                       42_520_393_152),
}  # fmt: skip


def target_layers(t: TargetShape, layers: list[int] | None) -> tuple[int, int, int]:
    """Layers whose inputs a head reads; EAGLE-3's own choice where there are enough. Raises BadValueError."""
    if t.n_layer < 4:
        raise BadValueError(
            f"{t.name} has {t.n_layer} layers, and a head reads the inputs of three behind the first; "
            "train a draft for it (duo train-draft)"
        )
    low, middle, high = layers or ([2, t.n_layer // 2, t.n_layer - 3] if t.n_layer >= 8 else [1, 2, t.n_layer - 1])
    if high >= t.n_layer:
        raise BadValueError(f"--layers names layer {high} and {t.name} has {t.n_layer}, from 0; name lower ones")
    return low, middle, high


def head_sizes(n_embd: int, n_head: int | None, n_head_kv: int | None, n_head_dim: int) -> tuple[int, int, int]:
    """(heads, heads of keys, size of a head); n_head_dim: wanted where the number of heads is not given.

    Raises BadValueError."""
    heads = n_head or max(1, n_embd // n_head_dim)
    heads_kv = n_head_kv or heads
    if n_embd % heads or (n_embd // heads) % 2:
        raise BadValueError(f"{heads} heads do not divide a width of {n_embd} into even parts; give another --n-head")
    if heads % heads_kv:
        raise BadValueError(f"{heads} heads cannot share {heads_kv} heads of keys; give another --n-head-kv")
    return heads, heads_kv, n_embd // heads


@dataclass(frozen=True)
class NetworkSizes:
    """Sizes of what is trained; n_rows: tokens that it can guess."""

    n_embd: int
    n_layer: int
    n_head: int
    n_head_kv: int
    n_head_dim: int
    n_ff: int
    n_rows: int


def head_network(t: TargetShape, o: HeadOptions) -> NetworkSizes:
    """The head's sizes: those of one layer of the target, where the options say nothing else. Raises BadValueError."""
    n = o["n_embd"] or t.n_embd
    if n == t.n_embd and o["n_head"] is None and o["n_head_kv"] is None and t.n_head_dim % 2 == 0:
        heads, heads_kv, dim = t.n_head, t.n_head_kv, t.n_head_dim
    else:
        heads, heads_kv, dim = head_sizes(n, o["n_head"], o["n_head_kv"], min(t.n_head_dim, n))
    rows = o["rows"] or min(N_ROWS_MOST, max(16, t.n_vocab // 2))
    if rows > t.n_vocab:
        raise BadValueError(f"--rows is {rows} and {t.name} has {t.n_vocab} tokens; give fewer")
    n_ff = o["n_ff"] or (t.n_ff if n == t.n_embd else -(-8 * n // 3 // 32) * 32)
    return NetworkSizes(n, 1, heads, heads_kv, dim, n_ff, rows)


def draft_network(t: TargetShape, o: DraftOptions) -> NetworkSizes:
    """A draft's sizes: those of --from; or half as wide as the target, and fewer layers, where the options say nothing
    else. Raises DuoError."""
    if o["start"] is not None:
        s = TargetShape.of(ModelFile(Path(o["start"])))
        return NetworkSizes(s.n_embd, s.n_layer, s.n_head, s.n_head_kv, s.n_head_dim, s.n_ff, s.n_vocab)
    n = o["n_embd"] or min(N_DRAFT_EMBD_MOST, -(-t.n_embd // 128) * 64)
    heads, heads_kv, dim = head_sizes(n, o["n_head"], o["n_head_kv"], min(64, n))
    n_layer = o["n_layer"] or min(4, max(2, t.n_layer // 8))
    return NetworkSizes(n, n_layer, heads, heads_kv, dim, o["n_ff"] or -(-8 * n // 3 // 32) * 32, t.n_vocab)
