"""The target's file, as training reads it: its shape, its vocabulary's keys, some of its weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from duo.errors import BadValueError
from duo.gguf_tools.whole_file import CheckedGgufReader, content_of, whole_file
from duo.models.header import Header, read_header

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ModelFile:
    """A GGUF of any architecture."""

    path: Path

    @cached_property
    def header(self) -> Header:
        """Raises DuoError."""
        return read_header(self.path)

    @cached_property
    def readers(self) -> list[CheckedGgufReader]:
        """One for each part."""
        return [whole_file(p) for p in self.header.parts]

    def value(self, key: str, otherwise: Any = None) -> Any:
        """A header value of the architecture, such as rope.freq_base."""
        return self.header.values.get(f"{self.header.architecture}.{key}", otherwise)

    def number(self, key: str, otherwise: float) -> float:
        number = self.value(key, otherwise)
        return float(number) if isinstance(number, int | float) else otherwise

    @cached_property
    def n_embd(self) -> int:
        return self.header.n_embd

    def tokenizer(self) -> list[tuple[str, Any, gguf.GGUFValueType, gguf.GGUFValueType | None]]:
        """Keys of the vocabulary and the chat template, with their values and types, unchanged."""
        keys = []
        for name, field in self.readers[0].fields.items():
            if name.startswith("tokenizer.") and field.data:  # gguf-py writes no empty arrays
                is_array = field.types[0] is gguf.GGUFValueType.ARRAY
                keys.append((name, content_of(field), field.types[0], field.types[-1] if is_array else None))
        return keys

    def tensor(self, name: str) -> Floats | None:
        """Its weights in 32 bits, rows first; None: there is none of this name. Raises BadValueError: an unknown
        type."""
        for reader in self.readers:
            for t in reader.tensors:
                if t.name == name:
                    try:
                        weights: Floats = gguf.dequantize(np.asarray(t.data), t.tensor_type).astype(np.float32)
                    except NotImplementedError as e:
                        raise BadValueError(
                            f"{self.path}: gguf-py cannot read {name} ({e}); use another quantisation"
                        ) from None
                    return weights.reshape(tuple(int(n) for n in reversed(t.shape)))
        return None
