"""What `duo bench` says of a run with loaded models: command, settings, models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from duo.options.tables import ENGINE_OPTIONS

if TYPE_CHECKING:
    from duo.api.engine import Duo
    from duo.options.generate import GenerateOptions

# A run sets the mode and the draft length of each arm itself, and needs complete texts from prompts in no cache.
NOT_HERE = ("mode", "n_draft", "stop", "prompt_cache", "prompt_cache_all", "prompt_cache_ro", "cache_ram")
COMMAND_KEY = "duo.measure.bench"  # in click's meta: the command line as typed


def head_of_run(d: Duo, params: dict[str, Any], text: GenerateOptions, n_questions: int) -> dict[str, Any]:
    """The head of the report of a run with this Duo."""
    from duo.measure.bench.head import head_of

    settings = {
        "questions": n_questions,
        "repetitions": params["repetitions"],
        "warm_up": params["warm_up"],
        **{k: v for k, v in text.items() if k not in (*NOT_HERE, "logprobs")},
        **{k: v for k, v in d.options.items() if v != ENGINE_OPTIONS[k].default},
    }
    loaded = [m for m in (d.target, d.draft) if m is not None]
    return head_of(loaded, click.get_current_context().meta[COMMAND_KEY], settings)
