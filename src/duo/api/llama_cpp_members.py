"""What else of llama_cpp.Llama code asks for: arguments by place, the model's figures under their names there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from duo import _core
from duo.api.texts import Texts

# Arguments behind the first one, in llama_cpp's order.
PLACES_OF_COMPLETION = (
    "suffix", "max_tokens", "temperature", "top_p", "min_p", "typical_p", "logprobs", "echo", "stop",
    "frequency_penalty", "presence_penalty", "repeat_penalty", "top_k", "stream", "seed", "tfs_z", "mirostat_mode",
    "mirostat_tau", "mirostat_eta", "model", "stopping_criteria", "logits_processor", "grammar", "logit_bias",
)  # fmt: skip
PLACES_OF_CHAT = (
    "functions", "function_call", "tools", "tool_choice", "temperature", "top_p", "top_k", "min_p", "typical_p",
    "stream", "stop", "seed", "response_format", "max_tokens", "presence_penalty", "frequency_penalty",
    "repeat_penalty", "tfs_z", "mirostat_mode", "mirostat_tau", "mirostat_eta", "model", "logits_processor", "grammar",
    "logit_bias", "logprobs", "top_logprobs",
)  # fmt: skip


def by_name(function: str, order: Sequence[str], places: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that were given by place, with those that were given by name. Raises TypeError."""
    if len(places) > len(order):
        raise TypeError(f"{function}() takes {1 + len(order)} arguments at most, and {1 + len(places)} were given")
    named = dict(zip(order, places, strict=False))
    if twice := named.keys() & given.keys():
        raise TypeError(f"{function}() got two values for {sorted(twice)[0]!r}")
    return named | dict(given)


class LlamaMembers(Texts):
    """Figures are of the target, or of the draft if the target is on another machine."""

    @property
    def model_path(self) -> str:
        """The target's file."""
        return self.target.path

    @property
    def metadata(self) -> dict[str, str]:
        """What the file's header says of the model, but for lists. Raises DuoError if it cannot be read any more."""
        values = _core.read_header(os.fsencode(self.local_model.path))["values"]
        return {key: str(value) for key, value in values.items() if not isinstance(value, list)}

    def n_ctx(self) -> int:
        """Tokens that the context holds."""
        return self.local_model.n_ctx

    def n_vocab(self) -> int:
        """Tokens of the vocabulary."""
        return self.local_model.n_vocab

    def token_bos(self) -> int:
        """The token that begins a text; -1: there is none."""
        return self.local_model.token_bos

    def token_eos(self) -> int:
        """The token that ends a text; -1: there is none."""
        return self.local_model.token_eos

    def reset(self) -> None:
        """Nothing: each text begins anew, and what it has in common with the one before is read from the cache.

        Raises DuoError if this Duo is closed.
        """
        _ = self.engine
