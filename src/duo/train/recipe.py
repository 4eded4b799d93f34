"""What the teacher's data is made of, which bytes it takes, and which text has which number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from duo.errors import BadValueError

Tokens = npt.NDArray[np.int32]

GROUP_BYTES = 1 << 28  # of a group, which is written as a whole
N_GROUP = 64  # texts in it at most
N_CHECK = 64  # texts that check the training; fewer where there is little to learn from
N_CHECK_LENGTH = 192  # tokens of one
HELD_OUT = 20  # one part of the data in so many is for these


@dataclass(frozen=True)
class DataRecipe:
    """Settings that determine every text but for how many there are."""

    length: int  # tokens of a text
    written: float
    prompt_length: int
    temperatures: tuple[float, ...]
    top: int
    seed: int
    layers: tuple[int, ...]  # whose inputs are kept; empty: of none
    n_embd: int  # of the target

    @property
    def bytes_per_token(self) -> int:
        """Token id, features (16 bits each), ids and log-probabilities of the best tokens."""
        return 4 + 2 * len(self.layers) * self.n_embd + (4 + 2) * self.top

    @property
    def n_group(self) -> int:
        """Texts that are written at a time."""
        return max(1, min(N_GROUP, GROUP_BYTES // (self.length * self.bytes_per_token)))

    def n_texts(self, n_tokens: int) -> int:
        return max(1, math.ceil(n_tokens / self.length))

    def n_check(self, n_tokens: int) -> int:
        return max(8, min(N_CHECK, self.n_texts(n_tokens) // 4))

    def total_bytes(self, n_tokens: int) -> int:
        return (n_tokens + self.n_check(n_tokens) * min(self.length, N_CHECK_LENGTH)) * self.bytes_per_token

    def words(self) -> dict[str, Any]:
        return asdict(self) | {"temperatures": list(self.temperatures), "layers": list(self.layers)}


@dataclass(frozen=True)
class TextPiece:
    """A beginning of a text: tokens that are read, of which the target may go on with the first."""

    tokens: Tokens
    answered: bool  # the target always goes on behind all of them


@dataclass(frozen=True)
class PlannedText:
    """One text to come: the tokens of the data, and how many the target writes behind them (0: none)."""

    index: int
    tokens: Tokens
    n_write: int
    temperature: float
    seed: int


class Pieces:
    """The tokenized data, cut into pieces; some are held out to check the training."""

    def __init__(
        self, recipe: DataRecipe, bos: Sequence[int], read: Sequence[Tokens], answered: Sequence[Tokens]
    ) -> None:
        """bos: stands before every piece; read, answered: documents without it. Raises BadValueError: too little
        text."""
        self._recipe, self._bos = recipe, np.array(bos, np.int32)
        n = recipe.length - len(self._bos)
        cut = [d[i : i + n] for d in read for i in range(0, len(d), n)]
        usable = [c for c in cut if len(c) > recipe.prompt_length] or [c for c in cut if len(c) > 1]
        pieces = [TextPiece(c, False) for c in usable] + [TextPiece(d, True) for d in answered if len(d)]
        if len(pieces) < 2:
            raise BadValueError("the data is shorter than two texts; give more of it, or a smaller --length")
        order = np.random.default_rng(recipe.seed).permutation(len(pieces))
        n_held = max(1, len(pieces) // HELD_OUT)
        self.held_out = [pieces[i] for i in order[:n_held]]
        self.to_learn = [pieces[i] for i in order[n_held:]]

    def planned_text(self, index: int) -> PlannedText:
        """The text of this number; a piece that comes again is read in one round and continued in another."""
        r = self._recipe
        rng = np.random.default_rng((r.seed, index))
        piece = self.to_learn[index % len(self.to_learn)]
        temperature = r.temperatures[index % len(r.temperatures)]
        if piece.answered or rng.random() < r.written:
            return self._written(index, piece, r.length, temperature)
        return PlannedText(index, self._with_bos(piece.tokens), 0, 0.0, 0)

    def check(self, index: int) -> PlannedText:
        """A text that checks the training: the target goes on greedily with what was held out."""
        piece = self.held_out[index % len(self.held_out)]
        return self._written(index, piece, min(self._recipe.length, N_CHECK_LENGTH), 0.0)

    def _written(self, index: int, piece: TextPiece, length: int, temperature: float) -> PlannedText:
        n = len(piece.tokens) if piece.answered else self._recipe.prompt_length
        tokens = self._with_bos(piece.tokens[: min(n, length // 2)])
        return PlannedText(index, tokens, length - len(tokens), temperature, self._recipe.seed + index)

    def _with_bos(self, tokens: Tokens) -> Tokens:
        return np.concatenate([self._bos, tokens.astype(np.int32)])
