"""Log-probabilities as answers have them: OpenAI's four lists of completions, and a row for each token of chats."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from duo.compat.openai.shapes import ChatLogprobs, Logprobs
from duo.generation.result import TokenLogprobs

if TYPE_CHECKING:
    from duo import _core

LOWEST = -3.4028234663852886e38  # JSON has no infinity


class LogprobLists:
    """Makes OpenAI's lists of tokens that follow each other. n_before: characters before the first token; offsets count
    from the beginning of the prompt."""

    def __init__(self, model: _core.Model, n_before: int = 0) -> None:
        self._model = model
        self._offset = n_before  # characters before the next token; a character may have several tokens
        self._characters = codecs.getincrementaldecoder("utf-8")("ignore")

    def _piece(self, token: int) -> str:
        return self._model.written(token).decode("utf-8", "ignore")

    def of(self, tokens: Sequence[TokenLogprobs]) -> Logprobs:
        """The lists of the next tokens."""
        lists: Logprobs = {"tokens": [], "text_offset": [], "token_logprobs": [], "top_logprobs": []}
        for t in tokens:
            text = self._piece(t.token)
            lists["tokens"].append(text)
            lists["text_offset"].append(self._offset)
            lists["token_logprobs"].append(t.logprob)
            lists["top_logprobs"].append(self._best([*t.top, (t.token, t.logprob)]))
            self._offset += len(self._characters.decode(self._model.written(t.token)))
        return lists

    def _best(self, tokens: Iterable[tuple[int, float]]) -> dict[str, float]:
        """The best log-probability by text. Tokens that are parts of a character have an empty text."""
        best: dict[str, float] = {}
        for token, logprob in tokens:
            text = self._piece(token)
            best[text] = max(logprob, best.get(text, logprob))
        return best

    def of_prompt(self, first: int, rest: Sequence[TokenLogprobs], *, keeps_bos: bool = False) -> Logprobs:
        """The lists of a prompt, from its first token and the others. The first token has no log-probability.

        keeps_bos: BOS tokens are listed, too; else they are left out, as llama_cpp does.
        """
        bos = self._model.token_bos
        tokens = [t for t in (TokenLogprobs(first, 0.0), *rest) if keeps_bos or t.token != bos]
        lists = self.of(tokens)
        if tokens:
            lists["token_logprobs"][0] = lists["top_logprobs"][0] = None
        return lists


def joined_lists(head: Logprobs, tail: Logprobs) -> Logprobs:
    """Lists that follow each other as one of each."""
    return cast("Logprobs", {name: [*head[name], *tail[name]] for name in head})  # type: ignore[literal-required]


def finite(lists: Logprobs) -> Logprobs:
    """The lists with numbers that JSON has: no infinity."""
    return {
        **lists,
        "token_logprobs": [p if p is None else max(p, LOWEST) for p in lists["token_logprobs"]],
        "top_logprobs": [
            top if top is None else {name: max(p, LOWEST) for name, p in top.items()} for top in lists["top_logprobs"]
        ],
    }


def rows_of_lists(lists: Logprobs | None) -> ChatLogprobs | None:
    """A row for each token, as llama_cpp's chats have it: made of the lists, without bytes. Tokens of a prompt have
    none."""
    if lists is None:
        return None
    rows = zip(lists["tokens"], lists["token_logprobs"], lists["top_logprobs"], strict=True)
    return {
        "content": [
            {
                "token": token,
                "bytes": None,
                "logprob": logprob,
                "top_logprobs": [{"token": t, "logprob": p, "bytes": None} for t, p in top.items()],
            }
            for token, logprob, top in rows
            if logprob is not None and top is not None
        ],
        "refusal": None,
    }


def rows_of_tokens(model: _core.Model, tokens: Iterable[TokenLogprobs]) -> list[dict[str, Any]]:
    """A row for each token, as llama-server and OpenAI's chats have it: with its id and its bytes, finite."""

    def row(token: int, logprob: float) -> dict[str, Any]:
        data = model.written(token)
        text = data.decode("utf-8", "replace")
        return {"id": token, "token": text, "bytes": list(data), "logprob": max(logprob, LOWEST)}

    return [{**row(t.token, t.logprob), "top_logprobs": [row(*one) for one in t.top]} for t in tokens]
