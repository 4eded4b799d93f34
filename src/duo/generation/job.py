"""The request for one text, checked before any work begins."""

from __future__ import annotations

import operator
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from duo import _core
from duo.chat.pictures import MARKER, between
from duo.errors import BadValueError
from duo.generation.hook import Hook
from duo.generation.pictures import SeenTokens, file_of, seen_tokens
from duo.generation.row_hooks import has_mirostat, wanted_by
from duo.grammar.grammar import check_grammar, grammar_of
from duo.models.head import HEADS
from duo.options.generate import GenerateOptions
from duo.options.tables import GENERATE_OPTIONS
from duo.options.validate import generate_options

Prompt = str | Iterable[SupportsIndex]  # text, or token ids: a list, an array, ...


def prompt_tokens(model: _core.Model, prompt: Prompt) -> list[int]:
    """Token ids of a prompt that is text or ids. Raises BadValueError (empty, NUL, not Unicode, no ids) or
    TypeError."""
    if isinstance(prompt, SeenTokens):
        return prompt
    if isinstance(prompt, str):
        check_text(prompt, "the prompt")
        return model.tokenize(prompt, True, True)
    if isinstance(prompt, bytes | bytearray):
        raise TypeError("the prompt is bytes; decode it to str first")
    if not isinstance(prompt, Iterable) or getattr(prompt, "ndim", 1) == 0:
        raise TypeError(f"the prompt is {type(prompt).__name__}; give text or token ids")
    ids = []
    for i, t in enumerate(prompt):
        try:
            if isinstance(t, bool):
                raise TypeError
            ids.append(operator.index(t))
        except TypeError:
            raise BadValueError(f"token {i} of the prompt is {t!r}; give integers") from None
    n_vocab = model.n_vocab
    for i, t in enumerate(ids):
        if not 0 <= t < n_vocab:
            raise BadValueError(f"token {i} of the prompt is {t}, outside the vocabulary (0 to {n_vocab - 1})")
    if not ids:
        raise BadValueError("the prompt is empty; give at least one token")
    return ids


def check_text(text: str, what: str) -> None:
    """Raises BadValueError for text that no tokenizer can read: NUL (the end of a C string) and lone surrogates."""
    if "\0" in text:
        raise BadValueError(f"{what} holds a NUL character at position {text.index(chr(0))}; remove it")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as e:
        raise BadValueError(f"{what} is not valid Unicode (position {e.start}); decode it as UTF-8") from None


def _stops(o: GenerateOptions) -> list[str]:
    return [o["stop"]] if isinstance(o["stop"], str) else list(o["stop"])


def _hook_of(o: GenerateOptions, target: _core.Model | None) -> Hook | None:
    """Raises BadValueError: the target is on another machine."""
    for name in ("logits_processor", "stopping_criteria"):
        if o[name] is not None and target is None:
            raise BadValueError(f"{name} runs beside the target, which is on another machine; leave it out")
    if target is None and (name := wanted_by(o)):
        flag = GENERATE_OPTIONS[name].flags[0]
        raise BadValueError(
            f"{name} ({flag}) needs the target in this process, and it is on another machine; leave it out"
        )
    hook = Hook(o["logits_processor"], o["stopping_criteria"])
    if o["post_sampling_probs"]:
        if target is None:
            raise BadValueError("post_sampling_probs needs the target in this process, and it is on another machine")
        if other := wanted_by(o) or ("logits_processor" if hook else ""):
            raise BadValueError(f"post_sampling_probs cannot be computed together with {other}; leave one of them out")
    return hook if hook else None


def _check_ids(o: GenerateOptions, n_vocab: int) -> None:
    for t in o["logit_bias"]:
        if not 0 <= t < n_vocab:
            raise BadValueError(f"logit_bias (-l) names token {t}, outside the vocabulary (0 to {n_vocab - 1})")
    if (o["logprobs"] or 0) > n_vocab:
        raise BadValueError(f"logprobs is {o['logprobs']}, but the vocabulary has only {n_vocab} tokens; ask for fewer")


def _check_draft(o: GenerateOptions, draft: _core.Model | None) -> None:
    """Raises BadValueError: the draft is not of the kind that spec_type names."""
    kind = draft_of(o).removeprefix("draft-")
    if draft is not None and kind not in ("", "simple", draft.head):
        what = HEADS.get(draft.head, "a model")
        raise BadValueError(
            f"spec_type (--spec-type) is draft-{kind}, but the draft that was loaded is {what}; leave it out, or "
            "load another draft"
        )


def sampling(o: GenerateOptions, seed: int) -> _core.Sampling:
    """How to sample, as the core takes it. Raises BadValueError (grammar)."""
    s = _core.Sampling()
    # Logits that are divided by less than this overflow a float.
    s.temp = o["temperature"] if o["temperature"] >= 1e-6 else 0.0
    s.top_k, s.top_p, s.min_p = o["top_k"], o["top_p"], o["min_p"]
    s.repeat_penalty, s.repeat_last_n = o["repeat_penalty"], o["repeat_last_n"]
    s.presence_penalty, s.frequency_penalty = o["presence_penalty"], o["frequency_penalty"]
    s.typical_p, s.top_n_sigma = o["typical_p"], o["top_n_sigma"]
    s.xtc_probability, s.xtc_threshold = o["xtc_probability"], o["xtc_threshold"]
    s.dynatemp_range, s.dynatemp_exponent = o["dynatemp_range"], o["dynatemp_exponent"]
    s.dry_multiplier, s.dry_base = o["dry_multiplier"], o["dry_base"]
    s.dry_allowed_length, s.dry_penalty_last_n = o["dry_allowed_length"], o["dry_penalty_last_n"]
    s.dry_sequence_breakers = o["dry_sequence_breakers"]
    s.accept, s.accept_top = o["accept"], o["accept_top"]
    s.posterior_threshold, s.posterior_alpha = o["posterior_threshold"], o["posterior_alpha"]
    s.ignore_eos, s.seed = o["ignore_eos"], seed
    s.logit_bias = list(o["logit_bias"].items())
    s.grammar = grammar_of(o)
    if has_mirostat(o):
        s.top_k, s.top_p, s.min_p, s.typical_p, s.top_n_sigma = 0, 1.0, 0.0, 1.0, -1.0
        s.xtc_probability = s.dynatemp_range = s.dry_multiplier = 0.0
        s.repeat_penalty, s.presence_penalty, s.frequency_penalty = 1.0, 0.0, 0.0
    return s


def speculation(o: GenerateOptions) -> _core.Plan:
    """How to speculate, as the core takes it."""
    p = _core.Plan()
    p.mode = o["mode"]
    p.n_draft = _core.N_DRAFT_AUTO if o["n_draft"] == "auto" else o["n_draft"]
    p.n_draft_min, p.p_min = o["n_draft_min"], o["draft_p_min"]
    p.n_branch = 0 if o["n_draft_branches"] == "auto" else o["n_draft_branches"]
    window = o["draft_window"]
    p.n_window = window if isinstance(window, int) else -1 if window == "auto" else 0
    p.has_model = bool(draft_of(o))
    if isinstance(o["draft_tree"], str):
        p.use = o["draft_tree"]
    else:
        p.tree = o["draft_tree"]
    p.ngram = ngram_of(o) or "none"
    p.ngram_size_n, p.ngram_size_m, p.ngram_min_hits = o["ngram_size_n"], o["ngram_size_m"], o["ngram_min_hits"]
    return p


def n_kept(o: GenerateOptions, model: _core.Model, tokens: list[int]) -> int:
    """Tokens that stay when the context is shifted, as llama-server counts them (server-context.cpp)."""
    n = len(tokens) if o["n_keep"] < 0 else o["n_keep"]
    return min(n + model.vocabulary.add_bos, 2**31 - 1)


def ngram_of(o: GenerateOptions) -> str:
    """The kind of n-grams that make guesses; empty if none do."""
    return next((t for t in o["spec_type"] if t.startswith("ngram-")), "")


def draft_of(o: GenerateOptions) -> str:
    """The kind of draft that makes guesses, as --spec-type names it; empty: the draft is not used."""
    return next((t for t in o["spec_type"] if t.startswith("draft-")), "")


def makes_guesses(o: GenerateOptions, has_draft: bool) -> bool:
    """Whether passes of the target verify guesses, of a draft model or of n-grams. o: with defaults filled in."""
    return o["mode"] != "plain" and (bool(ngram_of(o)) or (has_draft and bool(draft_of(o))))


@dataclass(frozen=True)
class Job:
    """A checked request for a text that has not begun."""

    options: GenerateOptions
    tokens: list[int]
    stop: list[str]
    seed: int
    hook: Hook | None = None


def check_early(prompt: Prompt, options: dict[str, Any], function: str = "generate") -> GenerateOptions:
    """Checks what can be checked of options and prompt before a model is loaded. Returns the complete options. Raises
    BadValueError and TypeError."""
    o = _checked(options, function, None)
    _check_words(prompt)
    return o


def _check_words(prompt: Prompt) -> None:
    """Raises BadValueError: it is text that no model can read."""
    if isinstance(prompt, str):
        if not prompt:
            raise BadValueError("the prompt is empty; give some text")
        check_text(prompt, "the prompt")


def _checked(options: dict[str, Any], function: str, model: _core.Model | None) -> GenerateOptions:
    """model: if it is loaded, for grammars that name its tokens."""
    o = generate_options(options, function)
    check_text(o["reasoning_budget_message"], "reasoning_budget_message (--reasoning-budget-message)")
    for s in _stops(o):
        if not s:
            raise BadValueError("a stop string (-r) is empty; leave it out")
        check_text(s, f"the stop string {s!r} (-r)")
    check_grammar(grammar_of(o), model)
    return o


def check_options(
    options: dict[str, Any],
    function: str,
    model: _core.Model,
    target: _core.Model | None,
    draft: _core.Model | None = None,
) -> GenerateOptions:
    """Checks the keywords of texts for loaded models, and fills in the defaults.

    model: the one whose vocabulary is used. target, draft: None if it is on another machine. Raises BadValueError and
    TypeError.
    """
    o = _checked(options, function, model)
    _check_draft(o, draft)
    _check_ids(o, model.n_vocab)
    for name, is_set in (("prompt_cache", o["prompt_cache"] is not None), ("context_shift", o["context_shift"])):
        if target is None and is_set:
            flag = GENERATE_OPTIONS[name].flags[0].partition("/")[0]
            raise BadValueError(
                f"{name} ({flag}) needs the target in this process, and it is in another one; leave it out"
            )
    return o


def job_of(o: GenerateOptions, model: _core.Model, target: _core.Model | None, prompt: Prompt) -> Job:
    """The request for a text with checked options. Raises BadValueError and TypeError: the prompt cannot be used."""
    _check_words(prompt)
    seed = o["seed"] if o["seed"] >= 0 else secrets.randbits(63)
    tokens = prompt_with_images(model, prompt, o["images"]) if o["images"] else prompt_tokens(model, prompt)
    return Job(o, tokens, _stops(o), seed, _hook_of(o, target))


def prompt_with_images(model: _core.Model, prompt: Prompt, images: Sequence[str | bytes]) -> SeenTokens:
    """Raises BadValueError."""
    if not isinstance(prompt, str):
        raise BadValueError("images (--image) need a prompt of text; token ids have no place for them")
    return seen_tokens(model, between(prompt, MARKER, map(file_of, images)))
