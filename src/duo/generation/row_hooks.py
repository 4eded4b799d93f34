"""What changes a text's rows before the target chooses: samplers in another order, mirostat, limits of thoughts."""

from __future__ import annotations

from duo import _core
from duo.options.generate import GenerateOptions
from duo.options.samplers import ADAPTIVE, filters, is_usual

Hooks = tuple[list[_core.TokenHook], _core.Sampling | None]


def wanted_by(o: GenerateOptions) -> str:
    """The option that needs a hook of the target's thread, by its keyword; empty: none does."""
    if has_mirostat(o):
        return "mirostat"
    if has_adaptive_p(o) or not is_usual(o["samplers"]):
        return "samplers"
    return "reasoning_budget" if o["reasoning_budget"] > 0 else ""


def has_mirostat(o: GenerateOptions) -> bool:
    """Whether Mirostat replaces the samplers except the temperature, as in llama.cpp. At temperature 0 it does not."""
    return o["mirostat"] > 0 and o["temperature"] >= 1e-6


def has_adaptive_p(o: GenerateOptions) -> bool:
    """Whether adaptive-p is used: it has to be named among the samplers, as in llama.cpp."""
    return ADAPTIVE in (o["samplers"] or []) and o["adaptive_target"] >= 0 and o["temperature"] >= 1e-6


def hooks_of(engine: _core.Engine, o: GenerateOptions, s: _core.Sampling) -> Hooks:
    """The hooks in their order, and the sampling that the target uses with them; None: `s`, that of the options."""
    target = engine.target
    hooks: list[_core.TokenHook] = []
    chosen: _core.Sampling | None = None
    if target is None:  # elsewhere; `wanted_by` has been checked
        return hooks, chosen
    if has_mirostat(o):
        hooks.append(_core.mirostat(engine, o["mirostat"], o["mirostat_tau"], o["mirostat_eta"], s))
    elif has_adaptive_p(o) or not is_usual(o["samplers"]):
        hooks.append(_core.ordered_samplers(engine, filters(o["samplers"]), s))
        chosen = _core.chosen_from(s)
        if has_adaptive_p(o):
            hooks.append(_core.adaptive_p(o["adaptive_target"], o["adaptive_decay"]))
    if o["reasoning_budget"] >= 0:
        from duo.chat.reading import THOUGHT_MARKS

        message = o["reasoning_budget_message"]
        marks = [_core.ThoughtMarks(a, b, target.tokenize(message + b, False, True)) for a, b in THOUGHT_MARKS]
        hooks.append(_core.thought_limit(engine, marks, o["reasoning_budget"]))
    return hooks, chosen
