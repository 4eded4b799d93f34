"""A cache of states that a program gives to llama_cpp.Llama.set_cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from duo.errors import BadValueError
from duo.support.same import n_same

if TYPE_CHECKING:
    from duo.generation.state import State


class StateCache:
    """What texts begin with, and where they are put when they have ended."""

    def __init__(self, states: Any, load: Callable[[State], None], save: Callable[[], State]) -> None:
        """states: llama_cpp.LlamaRAMCache, LlamaDiskCache, or whatever finds the state of the tokens that have most in
        common with others. load, save: of the models. Raises BadValueError."""
        if not hasattr(states, "__getitem__") or not hasattr(states, "__setitem__"):
            raise BadValueError(
                f"set_cache got {type(states).__name__}; give a cache of llama_cpp, such as LlamaRAMCache, or None"
            )
        self._states, self._load, self._save = states, load, save
        self._last_text: list[int] = []

    def recall(self, prompt: Sequence[int]) -> None:
        """Loads the state that has most in common with the prompt, if that is more than in the text before. Raises
        DuoError."""
        try:
            state = self._states[prompt]
        except KeyError:
            return
        if n_same(state.input_ids.tolist(), prompt) > n_same(self._last_text, prompt):
            self._load(state)

    def keep(self, text: Sequence[int]) -> None:
        """The text has just ended. Raises DuoError."""
        self._last_text = list(text)
        self._states[self._last_text] = self._save()
