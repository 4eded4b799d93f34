"""What else of llama_cpp.Llama code asks for: positional arguments, the model's figures under their names there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from duo import _core
from duo.compat.llama_cpp.given import GivenArguments
from duo.compat.llama_cpp.names import ANY_SEED
from duo.compat.llama_cpp.state_cache import StateCache
from duo.errors import BadValueError
from duo.generation.pictures import pictures_of
from duo.generation.texts import Texts
from duo.models.header import read_header
from duo.options.engine import EngineOptions
from duo.options.validate import generate_options
from duo.support.same import n_same

# Arguments behind the first one, in llama_cpp's order.
COMPLETION_ARGUMENTS = (
    "suffix", "max_tokens", "temperature", "top_p", "min_p", "typical_p", "logprobs", "echo", "stop",
    "frequency_penalty", "presence_penalty", "repeat_penalty", "top_k", "stream", "seed", "tfs_z", "mirostat_mode",
    "mirostat_tau", "mirostat_eta", "model", "stopping_criteria", "logits_processor", "grammar", "logit_bias",
)  # fmt: skip
CHAT_ARGUMENTS = (
    "functions", "function_call", "tools", "tool_choice", "temperature", "top_p", "top_k", "min_p", "typical_p",
    "stream", "stop", "seed", "response_format", "max_tokens", "presence_penalty", "frequency_penalty",
    "repeat_penalty", "tfs_z", "mirostat_mode", "mirostat_tau", "mirostat_eta", "model", "logits_processor", "grammar",
    "logit_bias", "logprobs", "top_logprobs",
)  # fmt: skip


def merged_arguments(
    function: str, order: Sequence[str], positional: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Positional and keyword arguments in one dict. order: names of the positional ones. Raises TypeError."""
    if len(positional) > len(order):
        raise TypeError(f"{function}() takes {1 + len(order)} arguments at most, and {1 + len(positional)} were given")
    by_name = dict(zip(order, positional, strict=False))
    if twice := by_name.keys() & keywords.keys():
        raise TypeError(f"{function}() got two values for {sorted(twice)[0]!r}")
    return by_name | dict(keywords)


# Members that duo does not have, and why.
REFUSED = {
    "ctx": "the models belong to duo's threads",
    "model": "the models belong to duo's threads; model_path and metadata say which one it is",
    "scores": "it needs logits_all=True; without it, eval_logits has the logits behind the last token",
    "model_params": "Duo.options has what a model was loaded with",
    "context_params": "Duo.options has what a model was loaded with",
}


class NotInDuo(BadValueError, AttributeError):  # noqa: N818
    """A member of llama_cpp.Llama that duo does not have; hasattr() says so, too."""


class Tokenizer:
    """llama_cpp.LlamaTokenizer's calls, for a Duo."""

    def __init__(self, duo: Texts) -> None:
        self._duo = duo

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        """Token ids of UTF-8 text. Raises BadValueError."""
        return self._duo.tokenize(text, add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Bytes of token ids. Raises BadValueError."""
        return self._duo.detokenize(tokens, prev_tokens, special)

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> list[int]:
        """Token ids of text. Raises BadValueError."""
        return self.tokenize(text.encode("utf-8", "ignore"), add_bos, special)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of token ids; bytes that are no character are left out. Raises BadValueError."""
        return self.detokenize(tokens).decode("utf-8", "ignore")


class LlamaMembers(GivenArguments):
    """Figures are of the target, or of the draft if the target is on another machine."""

    options: EngineOptions  # `Duo` sets them
    cache: object = None  # see set_cache
    _state_cache: StateCache | None = None
    _draws_seeds = False  # see set_seed

    if not TYPE_CHECKING:  # checkers would take it for the type of every name

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError; for a member of llama_cpp.Llama one that says why."""
            if name in REFUSED:
                raise NotInDuo(f"llama_cpp's {name} is not in duo: {REFUSED[name]}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def draft_model(self) -> _core.Model | None:
        """The loaded draft; None: there is none in this process."""
        return self.draft

    @property
    def model_path(self) -> str:
        """The target's file."""
        return self.target.path

    @property
    def metadata(self) -> dict[str, str]:
        """What the header of the model's file says, without lists. Raises DuoError: it cannot be read any more."""
        model = self.local_model
        values = read_header(model.path).values
        return {key: model.meta(key) for key, value in values.items() if not isinstance(value, list)}

    @property
    def n_batch(self) -> int:
        """The most tokens in one evaluation."""
        return min(self.options["n_batch"], self.n_ctx())

    @property
    def n_threads(self) -> int:
        """CPU threads of the model."""
        return self.local_model.n_threads

    @property
    def n_threads_batch(self) -> int:
        """CPU threads of the model for prompts."""
        return self.options["n_threads_batch"] or self.n_threads

    @property
    def last_n_tokens_size(self) -> int:
        """Number of recent tokens that the penalties count."""
        n: int = generate_options({**self.defaults})["repeat_last_n"]
        return n

    def n_ctx(self) -> int:
        """Size of the context in tokens."""
        return self.local_model.n_ctx

    def n_vocab(self) -> int:
        """Size of the vocabulary in tokens."""
        return self.local_model.n_vocab

    def token_bos(self) -> int:
        """The token that begins a text; -1: there is none."""
        return self.local_model.token_bos

    def token_eos(self) -> int:
        """The token that ends a text; -1: there is none."""
        return self.local_model.token_eos

    def n_embd(self) -> int:
        """Width of the model's states. Raises BadValueError: the header of the file does not say it."""
        values = self.metadata
        n = values.get(f"{values.get('general.architecture')}.embedding_length")
        if n is None:
            raise BadValueError("the model's file does not say how long an embedding is")
        return int(n)

    def token_nl(self) -> int:
        """The token of a line break; -1: there is none."""
        model = self.local_model
        return next((t for t in range(model.n_vocab) if model.piece(t) == b"\n"), -1)

    def tokenizer(self) -> Tokenizer:
        """An object that tokenizes as llama_cpp.LlamaTokenizer does."""
        return Tokenizer(self)

    @property
    def tokenizer_(self) -> Tokenizer:
        """The same, under llama_cpp's other name."""
        return Tokenizer(self)

    @property
    def _model(self) -> Tokenizer:
        """What llama_cpp.LlamaTokenizer(duo) looks for."""
        return Tokenizer(self)

    def set_seed(self, seed: int) -> None:
        """Sets the default seed. -1 (or llama_cpp's 2**32 - 1): a new one for each text.

        As in llama_cpp, each completion then draws its seed from the one before. `generate` and `stream` take the seed
        as it is.

        Raises:
            BadValueError: It is another negative number.
        """
        seed = -1 if seed == ANY_SEED else seed
        generate_options({"seed": seed})
        self.defaults["seed"] = seed
        self._draws_seeds = True

    def drawn_seed(self, options: Mapping[str, Any]) -> dict[str, int]:
        """The seed of a completion with these arguments, if `set_seed` was called and they have none."""
        with self.session.lock():
            last = self.defaults.get("seed", -1)
            if not self._draws_seeds or options.get("seed") is not None or last < 0:
                return {}
            from random import Random

            self.defaults["seed"] = Random(last).randint(0, 2**32)  # as llama.py's _create_completion
            return {"seed": self.defaults["seed"]}

    def set_cache(self, cache: object) -> None:
        """Completions and chats look for their beginning in this cache, and put their state there when they have ended.

        The models' own caches keep what texts have in common anyway. This one may be shared by several `Duo`s, or be on
        the disk. A state is a copy of the models' caches, and is made while no text is written. A state that belongs to
        another model or setting is not used. Seeds of later texts stay as they are, other than in llama_cpp.

        Args:
            cache: As in llama_cpp, such as llama_cpp.LlamaRAMCache. None: no cache.

        Raises:
            BadValueError: It is no cache, or the target is on another machine.
        """
        if cache is not None:
            self._needs_target("set_cache")
        # By name when it is called, because programs put functions of their own in their place.
        found = None
        if cache is not None:
            defaults = cast("dict[str, Any]", self.defaults)
            found = StateCache(cache, lambda x: self.load_state(x), lambda: self.save_state(), defaults)
        self.cache, self._state_cache = cache, found

    def _recalled(self, prompt: Sequence[int]) -> Callable[[Sequence[int]], None]:
        """Looks for a prompt in the cache of `set_cache`. Returns what keeps the text when it has ended. Raises
        DuoError."""
        cache = self._state_cache
        if cache is None or pictures_of(prompt) is not None:
            return lambda _tokens: None
        cache.recall(prompt)
        return lambda tokens: cache.keep([*prompt, *tokens])

    @staticmethod
    def longest_token_prefix(a: Sequence[int], b: Sequence[int]) -> int:
        """Length of the common prefix of two sequences, in tokens."""
        return n_same(a, b)

    @staticmethod
    def logits_to_logprobs(logits: Any, axis: int = -1) -> Any:
        """Converts logits to log-probabilities (nats) of the same shape: x - log(sum(exp(x))) along the axis."""
        import numpy as np

        x = np.asarray(logits, dtype=np.single)
        top = np.max(x, axis=axis, keepdims=True)
        below = x - np.where(np.isfinite(top), top, np.single(0))
        with np.errstate(divide="ignore"):
            return below - np.log(np.sum(np.exp(below), axis=axis, keepdims=True))
