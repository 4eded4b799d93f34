"""What each rule of acceptance (--accept) keeps of the target's text, in words."""

from __future__ import annotations

from duo.options.generate import GenerateOptions
from duo.options.option import AcceptRule

_PROMISES: dict[AcceptRule, str] = {
    "noise": "the text is a function of target, prompt and seed",
    "rejection": "the target's distribution; the text depends on the draft too",
    "typical": "lossy: not the target's distribution",
    "top-n": "lossy: not the target's distribution",
}


def promise(rule: AcceptRule) -> str:
    """The name of the rule, and what it keeps."""
    return f"{rule} acceptance, {_PROMISES[rule]}"


def promise_of(o: GenerateOptions) -> str:
    """The promise of a text's rule; empty if the text is the one of the target alone. o: with defaults filled in."""
    greedy = o["temperature"] < 1e-6 and not o["dynatemp_range"]
    return "" if greedy or o["accept"] == "noise" else promise(o["accept"])
