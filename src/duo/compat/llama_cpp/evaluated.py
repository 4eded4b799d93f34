"""The tokens that llama_cpp.Llama.eval was given, and the logits behind them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from duo.errors import BadValueError, ContextFullError, DoesNotFitError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.intc]
    Rows = npt.NDArray[np.float32]


class EvaluatedTokens:
    """The first n_tokens of input_ids, int32 [n_ctx]. Both may be changed: what comes next is behind what they say.

    scores: float32 [n_ctx, n_vocab], the logits behind each token; None: they are not kept.
    """

    def __init__(self, n_ctx: int, n_vocab: int, *, with_scores: bool) -> None:
        import numpy as np

        self.input_ids: Ids = np.zeros(n_ctx, np.intc)
        self.n_tokens = 0
        self.scores: Rows | None = None
        if with_scores:
            try:  # the system gives a page of zeros its memory when it is written to
                self.scores = np.zeros((n_ctx, n_vocab), np.float32)
            except MemoryError:
                raise DoesNotFitError(
                    f"the logits of {n_ctx} tokens (logits_all) do not fit into memory; lower n_ctx"
                ) from None
        self._last: tuple[bytes, Rows] | None = None

    @property
    def tokens(self) -> list[int]:
        """The tokens that were evaluated. Raises BadValueError: n_tokens was set to an impossible number."""
        if not 0 <= self.n_tokens <= len(self.input_ids):
            raise BadValueError(f"n_tokens is {self.n_tokens}, and the context holds 0 to {len(self.input_ids)} tokens")
        tokens: list[int] = self.input_ids[: self.n_tokens].tolist()
        return tokens

    def check_room(self, n: int) -> None:
        """Raises ContextFullError: n more tokens, and one behind them, are more than the context holds."""
        if self.n_tokens + n >= len(self.input_ids):
            raise ContextFullError(
                f"{self.n_tokens} tokens are evaluated, and {n} more do not fit into a context of "
                f"{len(self.input_ids)}; raise n_ctx"
            )

    def add(self, tokens: Sequence[int]) -> None:
        """They are behind the others. Raises ContextFullError."""
        self.check_room(len(tokens))
        self.input_ids[self.n_tokens : self.n_tokens + len(tokens)] = tokens
        self.n_tokens += len(tokens)

    def replace(self, tokens: Sequence[int]) -> None:
        """They take the place of the others. Raises ContextFullError."""
        self.n_tokens = 0
        self.add(tokens)

    def eval_tokens(self) -> deque[int]:
        """As llama_cpp.Llama.eval_tokens."""
        return deque(self.tokens, maxlen=len(self.input_ids))

    def eval_logits(self, logits_behind: Callable[[list[int]], Rows]) -> deque[list[float]]:
        """As llama_cpp.Llama.eval_logits: all rows, or without scores the last one, which logits_behind computes."""
        tokens = self.tokens
        if self.scores is not None:
            return deque(self.scores[: self.n_tokens].tolist(), maxlen=len(self.input_ids))
        if not tokens:
            return deque(maxlen=1)
        key = self.input_ids[: self.n_tokens].tobytes()
        if self._last is None or self._last[0] != key:
            self._last = (key, logits_behind(tokens))
        return deque([self._last[1].tolist()], maxlen=1)
