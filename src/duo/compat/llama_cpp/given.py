"""Arguments of the constructor that llama_cpp.Llama keeps as members."""

from __future__ import annotations

from typing import Any

from duo.generation.texts import Texts


class GivenArguments(Texts):
    """They are as they were given, not as duo read them."""

    _made_of: tuple[Any, Any, dict[str, Any]]  # target, draft, keywords; `Duo` sets it

    @property
    def tensor_split(self) -> Any:
        """As it was given to the constructor."""
        return self._made_of[2].get("tensor_split")

    @property
    def kv_overrides(self) -> Any:
        """As it was given to the constructor."""
        return self._made_of[2].get("kv_overrides")

    @property
    def lora_base(self) -> None:
        """Always None: duo has no lora_base."""

    @property
    def lora_path(self) -> Any:
        """As it was given to the constructor."""
        return self._made_of[2].get("lora_path")

    @property
    def lora_scale(self) -> Any:
        """As it was given to the constructor."""
        return self._made_of[2].get("lora_scale", 1.0)

    @property
    def numa(self) -> Any:
        """As it was given to the constructor."""
        return self._made_of[2].get("numa", False)

    @property
    def spm_infill(self) -> bool:
        """Whether the suffix comes before the prefix."""
        return bool(self._made_of[2].get("spm_infill", False))
