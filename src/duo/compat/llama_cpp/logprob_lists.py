"""OpenAI's four lists of log-probabilities, as completions of the Python API and of the server have them."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from duo.compat.llama_cpp.openai import Logprobs
from duo.generation.result import TokenLogprobs

if TYPE_CHECKING:
    from duo import _core


class LogprobLists:
    """Of tokens that follow each other. n_before: characters before the first one; offsets count from the prompt's."""

    def __init__(self, model: _core.Model, n_before: int = 0) -> None:
        self._model = model
        self._offset = n_before  # characters before the next token; a character may have several tokens
        self._characters = codecs.getincrementaldecoder("utf-8")("ignore")

    def _piece(self, token: int) -> str:
        return self._model.piece(token).decode("utf-8", "ignore")

    def of(self, tokens: Sequence[TokenLogprobs]) -> Logprobs:
        """Of the next tokens."""
        lists: Logprobs = {"tokens": [], "text_offset": [], "token_logprobs": [], "top_logprobs": []}
        for t in tokens:
            text = self._piece(t.token)
            lists["tokens"].append(text)
            lists["text_offset"].append(self._offset)
            lists["token_logprobs"].append(t.logprob)
            lists["top_logprobs"].append(self._best([*t.top, (t.token, t.logprob)]))
            self._offset += len(self._characters.decode(self._model.piece(t.token)))
        return lists

    def _best(self, tokens: Iterable[tuple[int, float]]) -> dict[str, float]:
        """By text: the best of those that have it. All that are parts of a character have none."""
        best: dict[str, float] = {}
        for token, logprob in tokens:
            text = self._piece(token)
            best[text] = max(logprob, best.get(text, logprob))
        return best

    def of_prompt(self, first: int, rest: Sequence[TokenLogprobs], *, keeps_bos: bool = False) -> Logprobs:
        """Of a prompt's first token and the others. The first one in the lists has no log-probability.

        keeps_bos: BOS tokens are listed, too; else they are left out, as llama_cpp does.
        """
        bos = self._model.token_bos
        kept = [t for t in (TokenLogprobs(first, 0.0), *rest) if keeps_bos or t.token != bos]
        found = self.of(kept)
        if kept:
            found["token_logprobs"][0] = found["top_logprobs"][0] = None
        return found


def joined_lists(head: Logprobs, tail: Logprobs) -> Logprobs:
    """Lists that follow each other as one of each."""
    return cast("Logprobs", {name: [*head[name], *tail[name]] for name in head})  # type: ignore[literal-required]
