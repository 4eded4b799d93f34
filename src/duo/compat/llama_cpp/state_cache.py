"""A cache of states that a program gives to llama_cpp.Llama.set_cache."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from duo.errors import BadValueError, BusyError
from duo.support.same import n_same

if TYPE_CHECKING:
    from duo.generation.state import State


class StateCache:
    """What texts begin with, and where they are put when they have ended."""

    def __init__(
        self,
        states: Any,
        load: Callable[[State], None],
        save: Callable[[], State],
        defaults: MutableMapping[str, Any],
    ) -> None:
        """states: llama_cpp.LlamaRAMCache, LlamaDiskCache, or whatever finds the state of the tokens that have most in
        common with others. load, save, defaults: of the models. Raises BadValueError."""
        if not hasattr(states, "__getitem__") or not hasattr(states, "__setitem__"):
            raise BadValueError(
                f"set_cache got {type(states).__name__}; give a cache of llama_cpp, such as LlamaRAMCache, or None"
            )
        self._states, self._load, self._save, self._defaults = states, load, save, defaults
        self._last_text: list[int] = []

    def recall(self, prompt: Sequence[int]) -> None:
        """Loads the state that has most in common with the prompt, if that is more than in the text before, and if it
        is a state of these models. Later texts have their own seed all the same. Raises DuoError."""
        try:
            state = self._states[prompt]
        except KeyError:
            return
        if n_same(state.input_ids.tolist(), prompt) <= n_same(self._last_text, prompt):
            return
        seed = self._defaults.get("seed", -1)
        with suppress(BadValueError, BusyError):  # other models may share the cache; this thread may have a stream open
            self._load(state)
            self._defaults["seed"] = seed

    def keep(self, text: Sequence[int]) -> None:
        """The text has just ended. It is not kept if another text ended meanwhile, or this thread has a stream open.
        Raises DuoError."""
        self._last_text = list(text)
        with suppress(BusyError):
            state = self._save()
            saved = state.input_ids.tolist()
            if saved and n_same(saved, text) == min(len(saved), len(text)):
                self._states[saved] = state
