"""Fields of a request as the keywords of a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from duo._core import LIMITS
from duo.errors import BadValueError
from duo.generation.texts import text_defaults
from duo.options.samplers import ALL
from duo.options.tables import GENERATE_OPTIONS
from duo.server.adapters import scales_of
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.model import Duo
    from duo.server.schemas import TextFields

# Fields that have the names and the meaning of duo's own keywords.
SAME: tuple[str, ...] = tuple(
    name
    for name in (
        "samplers", "temperature", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability",
        "xtc_threshold", "dynatemp_range", "dynatemp_exponent", "repeat_penalty", "repeat_last_n", "presence_penalty",
        "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
        "dry_sequence_breakers", "ignore_eos", "stop", "grammar", "json_schema", "mode", "cache_prompt", "id_slot",
        "n_keep", "n_discard", "draft_tree", "draft_window", "n_draft_branches", "spec_type", "accept",
        "posterior_threshold", "posterior_alpha", "accept_top", "reasoning_budget_message",
        "mirostat", "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay",
        "post_sampling_probs",
    )
    if name in GENERATE_OPTIONS
)  # fmt: skip
# llama-server's, which would change the text.
NOT_TAKEN = (
    "grammar_lazy", "grammar_triggers", "preserved_tokens", "reasoning_budget_start_tag", "reasoning_budget_end_tag",
    "reasoning_budget_end_tags",
)  # fmt: skip
ANY_SEED = 0xFFFFFFFF  # LLAMA_DEFAULT_SEED
NO_LIMIT = 2**31 - 1


def text_options(f: TextFields, duo: Duo) -> dict[str, Any]:
    """Keywords of `Duo.stream`; what is absent is the server's default. max_tokens may be 0: the prompt is only read.

    Raises BadValueError.
    """
    _check_taken(f)
    fields = {name: value for name, value in f.model_dump(exclude_none=True).items() if name in SAME}
    if fields.get("dry_base", 1.0) < 1.0:  # stands for the server's, as in llama-server
        del fields["dry_base"]
    out: dict[str, Any] = {**text_defaults(duo, fields), **fields}
    if out.get("ignore_eos"):
        end_tokens(duo)  # answers name them, on the event loop
    if f.grammar and f.json_schema is not None:
        raise BadValueError("grammar and json_schema were both given; choose one")
    if not out.get("grammar"):
        out.pop("grammar", None)
    if isinstance(stop := out.get("stop"), str):
        out["stop"] = [stop]
    out["stop"] = [s for s in out.get("stop", ()) if s]
    if (n := most_tokens(f)) is not None:
        out["max_tokens"] = n
    if f.seed is not None:
        out["seed"] = -1 if f.seed in (-1, ANY_SEED) else f.seed
    # Clients of Anthropic's API send thinking_budget_tokens with every request. A target elsewhere has no limit.
    budget = _first(f.reasoning_budget_tokens, f.thinking_budget_tokens if duo.engine.target is not None else None)
    if budget is not None and budget != -1:
        out["reasoning_budget"] = min(budget, NO_LIMIT)
    if f.n_probs:
        if not 0 <= f.n_probs <= LIMITS["n_logprobs"]:
            raise BadValueError(f"n_probs is {f.n_probs}; give 0 to {LIMITS['n_logprobs']}")
        out["logprobs"] = min(f.n_probs, duo.n_vocab())
    if f.logit_bias is not None:
        out["logit_bias"] = biases(f.logit_bias, lambda text: duo.tokenize(text, add_bos=False))
    if f.lora:
        out["lora_scales"] = scales_of(f.lora, duo) or None
    _clamp(out)
    _drafts(f, out)
    if out.get("id_slot", -1) >= duo.session.turns.n:
        raise BadValueError(f"id_slot is {f.id_slot}; there are {duo.session.turns.n} slots, from 0")
    return out


def most_tokens(f: TextFields) -> int | None:
    """Of an answer, as the request says; -1: no limit. None: the server's default."""
    n = _first(f.max_completion_tokens, f.max_tokens, f.n_predict)
    return None if n is None else -1 if n < 0 else min(n, NO_LIMIT)


def _check_taken(f: TextFields) -> None:
    """Raises BadValueError: a field would change the text, and duo does not have it."""
    if (f.min_keep or 0) > 1:  # each sampler keeps one token at least
        raise BadValueError(f"min_keep is {f.min_keep}, and duo's samplers do not have it; leave it out, or give 0")
    if name := next((n for n in NOT_TAKEN if (f.model_extra or {}).get(n)), None):
        raise BadValueError(f"duo does not have {name}, which would change the text; leave it out")


def _first(*values: Any) -> Any:
    return next((v for v in values if v is not None), None)


def _clamp(out: dict[str, Any]) -> None:
    """Values that llama-server takes, and that mean a limit here."""
    for name in ("top_p", "min_p", "typical_p", "xtc_probability", "xtc_threshold"):
        value = out.get(name)
        if isinstance(value, float | int) and value == value:
            out[name] = min(1.0, max(0.0, value))
    if isinstance(out.get("top_k"), int):
        out["top_k"] = max(-1, out["top_k"])
    if isinstance(out.get("temperature"), float | int) and out["temperature"] < 0:
        out["temperature"] = 0.0
    for name in ("repeat_last_n", "dry_penalty_last_n"):
        if isinstance(out.get(name), int):
            out[name] = min(out[name], 2**20)


# Fields of a draft, as an object or with dots, by duo's keywords.
DRAFT = {"n_draft": "n_max", "n_draft_min": "n_min", "draft_p_min": "p_min"}


def _drafts(f: TextFields, out: dict[str, Any]) -> None:
    """draft: {n_max, n_min, p_min}, or llama-server's names (speculative.n_max). n_max 0: no guesses."""
    draft_fields: dict[str, Any] = {k.removeprefix("speculative."): v for k, v in (f.model_extra or {}).items()
                             if k.startswith("speculative.")}  # fmt: skip
    draft_fields |= f.draft or {}
    if unknown := f.draft and f.draft.keys() - set(DRAFT.values()):
        raise BadValueError(f"draft has the unknown field {sorted(unknown)[0]}; it takes n_max, n_min and p_min")
    for name, theirs in DRAFT.items():
        if draft_fields.get(theirs) is not None:
            out[name] = draft_fields[theirs]
    if isinstance(n := out.get("n_draft"), int) and isinstance(out.get("n_draft_min"), int):
        out["n_draft_min"] = min(out["n_draft_min"], n)


def biases(logit_bias: Any, ids_of: Callable[[str], list[int]]) -> dict[int, float]:
    """By token: of pairs [token or text, bias or false], of objects as `settings_shown` has them, or of one object with
    a bias for each token. Raises BadValueError."""
    pairs = list(logit_bias.items()) if isinstance(logit_bias, Mapping) else logit_bias
    out: dict[int, float] = {}
    for pair in pairs:
        if isinstance(pair, Mapping) and pair.keys() == {"token", "bias"}:
            pair = [pair["token"], False if pair["bias"] is None else pair["bias"]]  # null: never, as of ignore_eos
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise BadValueError(f"logit_bias holds {quoted(pair)}; write [token, bias] pairs, or an object")
        token, bias = pair
        if bias is False:
            bias = float("-inf")
        if isinstance(bias, bool) or not isinstance(bias, int | float):
            raise BadValueError(f"the bias of {quoted(token)} is {quoted(bias)}; give a number, or false for never")
        if isinstance(token, bool) or not isinstance(token, int | str):
            raise BadValueError(f"logit_bias names {quoted(token)}; give a token's id or a text")
        if isinstance(token, str) and isinstance(logit_bias, Mapping) and re.fullmatch("-?[0-9]{1,18}", token):
            token = int(token)
        for i in [token] if isinstance(token, int) else ids_of(token):
            try:
                out[i] = float(bias)
            except OverflowError:
                raise BadValueError(f"the bias of {quoted(token, 40)} is too large a number; 1000 is enough") from None
    return out


_END_TOKENS: WeakKeyDictionary[Duo, tuple[int, ...]] = WeakKeyDictionary()


def end_tokens(duo: Duo) -> tuple[int, ...]:
    """Tokens that end a text, which `ignore_eos` forbids; llama.cpp's end-of-generation tokens. The first call reads a
    whole vocabulary, which takes a tenth of a second: make it in a thread."""
    if duo not in _END_TOKENS:
        model = duo.local_model
        _END_TOKENS[duo] = tuple(i for i in range(model.n_vocab) if model.is_end(i))
    return _END_TOKENS[duo]


def settings_shown(options: Mapping[str, Any], duo: Duo) -> dict[str, Any]:
    """The keywords of a text under llama-server's names. null stands for an infinite bias, which JSON does not have."""
    shown = {name: options[name] for name in (*SAME, "seed", "draft_p_min", "n_draft_min") if name in options}
    shown |= {
        "n_predict": options["max_tokens"],
        "max_tokens": options["max_tokens"],
        "n_probs": options["logprobs"] or 0,
    }
    never = [(i, -inf) for i in end_tokens(duo)] if options["ignore_eos"] else []
    shown["logit_bias"] = [
        {"token": i, "bias": b if isfinite(b) else None} for i, b in (*options["logit_bias"].items(), *never)
    ]
    shown["samplers"] = ALL if options["samplers"] is None else options["samplers"]
    shown["lora"] = [{"id": i, "scale": scale} for i, scale in enumerate(options["lora_scales"] or ())]
    shown["speculative.n_max"] = options["n_draft"]
    shown["speculative.n_min"] = shown.pop("n_draft_min", 0)
    shown["speculative.p_min"] = shown.pop("draft_p_min", 0.0)
    return shown
