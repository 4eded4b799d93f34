"""Texts as vectors, for models that were trained for that, and scores of pairs of texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from duo import _core
from duo.errors import BadValueError, CancelledError
from duo.generation.texts import Texts
from duo.options.model import ModelOptions
from duo.placement import packed
from duo.placement.place import place_alone
from duo.support.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from duo.options.engine import EngineOptions

    Vectors = npt.NDArray[np.float32]

# By llama.cpp's numbers (llama_pooling_type); the model's own is -1.
POOLINGS = ("none", "mean", "cls", "last", "rank")
N_SCALE = 32760.0  # norm 0 makes the largest number fit into 16 bits


def pooling_named(pooling: object) -> str:
    """llama_cpp's number or a name; empty: the model's own. Raises BadValueError."""
    if pooling in (-1, "", None):
        return ""
    if isinstance(pooling, int) and not isinstance(pooling, bool) and 0 <= pooling < len(POOLINGS):
        return POOLINGS[pooling]
    if pooling in POOLINGS:
        return str(pooling)
    raise BadValueError(f"pooling_type is {quoted(pooling)}; choose from {', '.join(POOLINGS)}, or leave it out")


def open_embedder(
    file: str, o: EngineOptions, pooling: str, progress: Callable[[str, float], None] | None
) -> _core.Embedder:
    """Loads a model for embeddings, alone on its devices. Raises DuoError."""
    # It is shown no pictures, and keeps no states of prompts.
    options = ModelOptions.of({**o, "n_parallel": 1, "mmproj": None, "ctx_checkpoints": 0}, "target", file)
    if options.places_threads:  # the threads are those of the callers
        import logging

        logging.getLogger("duo").warning(
            "the CPUs and priorities of threads are not set for embeddings (-C, --prio-batch)"
        )
    m = place_alone(options)
    embedder = _core.Embedder(m, pooling, progress)
    packed.note_checked(m, "")  # of packed weights beside the model it says nothing
    return embedder


def normalized(vectors: Vectors, norm: int) -> Vectors:
    """As llama-server: -1 leaves them, 0 makes the largest number 32760, 1, 2, ... make the p-norm 1."""
    import numpy as np

    if norm < 0:
        return vectors
    size = np.abs(vectors.astype(np.float64))
    largest = np.maximum(size.max(axis=1), np.finfo(np.float64).tiny)
    ones = size / largest[:, None]  # whose powers do not overflow
    length = largest / N_SCALE if norm == 0 else largest * (ones**norm).sum(axis=1) ** (1.0 / norm)
    with np.errstate(divide="ignore", over="ignore"):
        return (vectors * np.where(size.any(axis=1), 1.0 / length, 0.0)[:, None]).astype(np.float32)


class Embeddings(Texts):
    """The part of `Duo` that needs `embedding=True`."""

    _vectors_stopped = False

    @property
    def embedder(self) -> _core.Embedder:
        """Raises BadValueError: the model was loaded to write. Raises CancelledError: it is closed, or is to end."""
        embedder = self._pair.embedder  # before the check: another thread may close
        if self.session.closed or self._vectors_stopped:
            raise CancelledError("this Duo is closed; make a new one")
        if embedder is None:
            raise BadValueError("this Duo was loaded to write texts; load it with embedding=True for embeddings")
        return embedder

    def stop_vectors(self) -> None:
        """Ends what is computed, for good; whoever waits gets CancelledError. From any thread."""
        embedder = self._pair.embedder  # another thread may close
        self._vectors_stopped = True
        if embedder is not None:
            embedder.stop()

    def pooling_type(self) -> int:
        """llama.cpp's number of the pooling, which makes one vector of a text.

        Raises:
            BadValueError: This Duo was not loaded with `embedding=True`.
        """
        return POOLINGS.index(self.embedder.pooling)

    def vectors(self, texts: Sequence[Sequence[int]], norm: int = 2) -> list[Vectors]:
        """Computes the vectors of texts that are given as token ids: float32 arrays of shape [1, n_embd].

        With pooling `none` the shape is [tokens, n_embd].

        Args:
            texts: Token ids of each text.
            norm: As llama-server's: -1 none, 0 the largest number becomes 32760, 1 taxicab, 2 Euclidean, N p-norm.

        Raises:
            BadValueError: A text is empty or too long, or this Duo was not loaded with `embedding=True`.
        """
        computed = self.embedder.embed([list(t) for t in texts])
        if self.embedder.pooling == "rank":
            norm = -1
        rows = normalized(computed, norm)
        if self.embedder.pooling != "none":
            return [rows[i : i + 1] for i in range(len(texts))]
        ends = accumulate(len(t) for t in texts)
        return [rows[end - len(t) : end] for t, end in zip(texts, ends, strict=True)]

    def embed(
        self, input: str | list[str], normalize: bool = False, truncate: bool = True, return_count: bool = False
    ) -> Any:
        """Computes the vector of a text, or of each text of a list, as llama_cpp.Llama.embed does.

        A vector is a list of numbers. With pooling `none` there is one for each token.

        Args:
            input: A text, or a list of texts.
            normalize: Scale each vector to length 1.
            truncate: Cut off the end of a text that is too long.
            return_count: Return (vectors, number of tokens).

        Raises:
            BadValueError: A text is empty or too long, or this Duo was not loaded with `embedding=True`.
        """
        several = [input] if isinstance(input, str) else list(input)
        tokens = [self.tokenize(text) for text in several]
        if truncate:
            tokens = [t[: self.embedder.n_most] for t in tokens]
        vectors: list[Any] = [v.tolist() for v in self.vectors(tokens, 2 if normalize else -1)]
        if self.embedder.pooling != "none":
            vectors = [rows[0] for rows in vectors]
        out = vectors[0] if isinstance(input, str) else vectors
        return (out, sum(map(len, tokens))) if return_count else out

    def create_embedding(self, input: str | list[str], model: str | None = None) -> dict[str, Any]:
        """The same in OpenAI's shape, as llama_cpp.Llama.create_embedding does.

        Args:
            input: A text, or a list of texts.
            model: The name in the answer. Default: the path of the model.
        """
        several = [input] if isinstance(input, str) else list(input)
        vectors, n = self.embed(several, return_count=True)
        data = [{"object": "embedding", "embedding": v, "index": i} for i, v in enumerate(vectors)]
        usage = {"prompt_tokens": n, "total_tokens": n}
        return {"object": "list", "data": data, "model": model or self.local_model.path, "usage": usage}

    def rank_tokens(self, query: str, document: str) -> list[int]:
        """Token ids of a query and a document as a reranker reads them (llama-server's format_prompt_rerank)."""
        template = self.embedder.rerank_template
        if template:
            parts = {"{query}": query, "{document}": document}
            return self.tokenize(re.sub("{query}|{document}", lambda m: parts[m[0]], template), False, True)
        before, middle, behind = self.embedder.around_pair
        return [*before, *self.tokenize(query, False), *middle, *self.tokenize(document, False), *behind]

    def rerank(self, query: str, documents: Sequence[str]) -> list[float]:
        """Scores how well each document answers the query. A higher score is better.

        Raises:
            BadValueError: The model is not a reranker, or was loaded without `embedding=True, pooling_type="rank"`.
        """
        if self.embedder.pooling != "rank":
            raise BadValueError(
                "scores need a model for reranking; load one with embedding=True and pooling_type='rank'"
            )
        return [float(v[0, 0]) for v in self.vectors([self.rank_tokens(query, d) for d in documents])]
