"""llama_cpp.Llama's way to evaluate and to sample one token after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from duo.compat.llama_cpp.completion import Completions, text_keywords
from duo.compat.llama_cpp.evaluated import EvaluatedTokens
from duo.compat.llama_cpp.members import merged_arguments
from duo.errors import BadValueError
from duo.generation.begin import start
from duo.generation.errand import read_ahead, turn
from duo.generation.hook import criteria_of
from duo.generation.job import Prompt, prompt_tokens
from duo.generation.texts import text_defaults
from duo.options.generate import GenerateOptions
from duo.options.signature import keywords
from duo.support.same import n_same

if TYPE_CHECKING:
    from duo.compat.llama_cpp.evaluated import Ids, Rows
    from duo.generation.state import State

# Arguments in llama_cpp's order.
SAMPLE_ARGUMENTS = (
    "top_k", "top_p", "min_p", "typical_p", "temp", "repeat_penalty", "frequency_penalty", "presence_penalty", "tfs_z",
    "mirostat_mode", "mirostat_eta", "mirostat_tau", "penalize_nl", "logits_processor", "grammar", "idx",
)  # fmt: skip
GENERATE_ARGUMENTS = (
    "top_k", "top_p", "min_p", "typical_p", "temp", "repeat_penalty", "reset", "frequency_penalty", "presence_penalty",
    "tfs_z", "mirostat_mode", "mirostat_tau", "mirostat_eta", "penalize_nl", "logits_processor", "stopping_criteria",
    "grammar",
)  # fmt: skip
ONLY_OF_LLAMA = {"temp", "reset", "penalize_nl", "tfs_z", "mirostat_mode"}  # duo's own `generate` has none of them
UNFILTERED: dict[str, Any] = {
    "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "mirostat": 0, "samplers": None,
}  # fmt: skip


def _of_samplers(options: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Keywords of `stream`. own: what `Duo` was given for all texts."""
    options.pop("penalize_nl", None)  # it has no effect in llama_cpp either
    temp = options.pop("temp", None)
    keywords = text_keywords(own, options, {})
    if temp is not None:
        keywords |= UNFILTERED if temp < 0 else {"temperature": temp}
    # The program decides where these texts end, so nothing else may end them.
    return {**keywords, "max_tokens": -1, "stop": [], "context_shift": False, "prompt_cache": None}


class Evaluation(Completions):
    """`eval`, `sample` and the generator of tokens. They know of each other's tokens, and of no other text's.

    The target must be in this process. Use them in one thread.
    """

    @cached_property
    def _evaluated(self) -> EvaluatedTokens:
        model = self.local_model
        return EvaluatedTokens(model.n_ctx, model.n_vocab, with_scores=bool(self._made_of[2].get("logits_all")))

    # ---- what was evaluated

    @property
    def n_tokens(self) -> int:
        """Tokens that `eval` and `generate_tokens` have evaluated; set it to go back."""
        return self._evaluated.n_tokens

    @n_tokens.setter
    def n_tokens(self, n: int) -> None:
        self._evaluated.n_tokens = n

    @property
    def input_ids(self) -> Ids:
        """int32 [n_ctx]: the first n_tokens are those that were evaluated."""
        return self._evaluated.input_ids

    @input_ids.setter
    def input_ids(self, ids: Sequence[int] | Ids) -> None:
        self._evaluated.input_ids[: len(ids)] = ids

    @property
    def eval_tokens(self) -> deque[int]:
        """The tokens that were evaluated."""
        return self._evaluated.eval_tokens()

    @property
    def eval_logits(self) -> deque[list[float]]:
        """Logits behind each token with `logits_all=True`, otherwise behind the last one. Raises DuoError."""
        return self._evaluated.eval_logits(self._logits_behind)

    @property
    def scores(self) -> Rows:
        """float32 [n_ctx, n_vocab]: with `logits_all=True`, the logits behind each token that was evaluated.

        Raises AttributeError without it.
        """
        if (rows := self._evaluated.scores) is None:
            raise AttributeError("scores")  # `__getattr__` says more
        return rows

    def reset(self) -> None:
        """Nothing is evaluated any more. What the caches hold of the tokens is used if they come again.

        Raises DuoError if this Duo is closed.
        """
        _ = self.engine
        self._evaluated.n_tokens = 0

    def save_state(self) -> State:
        """As `Texts.save_state`, with what was evaluated."""
        e = self._evaluated
        scores = None if e.scores is None or not e.n_tokens else e.scores[: e.n_tokens].copy()
        return replace(super().save_state(), evaluated=tuple(e.tokens), scores=scores)

    def load_state(self, state: State) -> None:
        """As `Texts.load_state`, and what was evaluated is what was evaluated then."""
        super().load_state(state)
        e = self._evaluated
        e.replace([int(t) for t in state.input_ids])
        if e.scores is not None:
            e.scores[: e.n_tokens] = 0.0 if state.scores is None else state.scores

    # ---- evaluating

    def eval(self, tokens: Sequence[int]) -> None:
        """Evaluates tokens behind those that are evaluated already, as llama_cpp.Llama.eval.

        The pass over the last one follows when its logits are asked for. With `logits_all=True` there is a pass for
        each token, because the core hands out one row of logits in a pass. Raises BadValueError (ids outside the
        vocabulary; the target is on another machine), ContextFullError, BusyError and DuoError.
        """
        self._needs_target("eval")
        if not len(tokens):
            return
        new_tokens, old_tokens = prompt_tokens(self.local_model, tokens), self._evaluated.tokens
        self._evaluated.check_room(len(new_tokens))
        scores = self._evaluated.scores
        if scores is None:
            with turn(self.session):
                read_ahead(self.session, old_tokens + new_tokens)
        else:
            all_tokens = old_tokens + new_tokens
            for i in range(len(old_tokens), len(all_tokens)):
                scores[i] = self._logits_behind(all_tokens[: i + 1])
        self._evaluated.add(new_tokens)

    def _logits_behind(self, tokens: list[int]) -> Rows:
        """float32 [n_vocab]. Raises DuoError."""
        rows: list[Rows] = []

        def keep(_ids: Ids, logits: Rows) -> bool:
            rows.append(logits)
            return True  # the text ends here

        self._needs_target("eval_logits")
        options = {"max_tokens": 1, "mode": "plain", "temperature": 0, "stopping_criteria": keep}
        with start(self.session, tokens, options, "eval") as s:
            for _ in s:
                pass
        return rows[0]

    def sample(self, *positional: Any, **options: Any) -> int:
        """A token that may follow those that were evaluated, as llama_cpp.Llama.sample.

        Arguments: top_k, top_p, min_p, typical_p, temp (below 0: no filters), repeat_penalty, frequency_penalty,
        presence_penalty, mirostat_mode, mirostat_eta, mirostat_tau, logits_processor, grammar, and idx: the token
        behind which it comes, by its place in the text. What is not given is as `Duo` was told for all texts.

        Raises TypeError, BadValueError (a value; nothing was evaluated) and DuoError.
        """
        arguments = merged_arguments("sample", SAMPLE_ARGUMENTS, positional, options)
        idx = arguments.pop("idx", None)
        self._needs_target("sample")
        tokens = self._evaluated.tokens
        if idx is not None:
            if not 0 <= idx < len(tokens):
                raise BadValueError(f"idx is {idx}, and {len(tokens)} tokens are evaluated; give 0 to n_tokens - 1")
            tokens = tokens[: idx + 1]
        if not tokens:
            raise BadValueError("sample needs a token before it; give some to eval first")
        keywords = _of_samplers(arguments, text_defaults(self, arguments))
        with start(self.session, tokens, {**keywords, "max_tokens": 1, "mode": "plain"}, "sample") as s:
            for _ in s:
                pass
            return s.result.tokens[0]

    # ---- generating

    def generate_tokens(self, tokens: Sequence[int], *positional: Any, **options: Any) -> Generator[int, object, None]:
        """Tokens that follow these, without an end: llama_cpp.Llama.generate, with guesses of the draft.

        It goes on behind an EOS token. reset: the text is `tokens`; False: they come behind what was evaluated.
        stopping_criteria: the generator ends, as at the end of a grammar. Other arguments are those of `sample`. What
        is sent to it is a guess, as there, and changes no text. While it is open it holds a slot: close it before the
        next text begins.

        Raises, when a token is asked for: TypeError, BadValueError (a value), ContextFullError (the context is full),
        BusyError and DuoError.
        """
        arguments = merged_arguments("generate_tokens", GENERATE_ARGUMENTS, positional, options)
        reset = arguments.pop("reset", True)
        self._needs_target("generate_tokens")
        keywords = _of_samplers(arguments, text_defaults(self, arguments))
        old_tokens = [] if reset else self._evaluated.tokens
        text = old_tokens + (prompt_tokens(self.local_model, tokens) if len(tokens) or not old_tokens else [])
        goes_on = True
        while goes_on:
            self._evaluate_all(text)
            with start(self.session, text, self._keeping_scores(keywords), "generate_tokens") as s:
                token: int | None = None
                for token in (chunk.token for chunk in s if chunk.token is not None):
                    yield token
                    self._evaluated.add([token])
                text, keywords["seed"] = self._evaluated.tokens, s.seed  # one seed, however often the text is begun
            goes_on = token is not None and self.local_model.is_end(token) and keywords.get("grammar") is None

    def _evaluate_all(self, text: list[int]) -> None:
        """Makes this text the one that is evaluated. Raises DuoError."""
        if self._evaluated.scores is None:
            self._evaluated.replace(text)  # the passes are those of the text that follows
        else:
            self.n_tokens = n_same(self._evaluated.tokens, text)
            self.eval(text[self.n_tokens :])

    def _keeping_scores(self, options: dict[str, Any]) -> dict[str, Any]:
        """Options of a text that puts its logits into `scores`, if they are kept."""
        if (scores := self._evaluated.scores) is None:
            return options

        def keep(ids: Ids, logits: Rows) -> bool:
            scores[len(ids) - 1] = logits
            return False

        return {**options, "stopping_criteria": [keep, *criteria_of(options.get("stopping_criteria"))]}

    if not TYPE_CHECKING:  # checkers know duo's own `generate`; typed programs say `generate_tokens`

        @keywords(GenerateOptions)
        def generate(self, prompt: Prompt, *positional: Any, **options: Any) -> Any:
            """The whole text, when it has ended. Keywords and errors are those of `stream`.

            With arguments that only llama_cpp.Llama.generate has (temp, reset, penalize_nl, tfs_z, mirostat_mode, or
            positional arguments), it is `generate_tokens`.
            """
            if positional or options.keys() & ONLY_OF_LLAMA:
                return self.generate_tokens(prompt, *positional, **options)
            return super().generate(prompt, **options)
