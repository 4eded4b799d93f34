"""The figures of a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import TypedDict


class TextTimings(TypedDict, total=False):
    """Figures of every text."""

    cache_n: int
    """Tokens of the prompt that were in the cache."""
    cache_ram_n: int
    """Those of them that came back from `cache_ram`."""
    prompt_n: int
    """Tokens of the prompt that were evaluated."""
    prompt_ms: float
    """Time of the prompt."""
    prompt_per_token_ms: float
    """`prompt_ms / prompt_n`."""
    prompt_per_second: float
    """Tokens of the prompt per second."""
    predicted_n: int
    """Tokens of the text."""
    predicted_ms: float
    """Time from the first token to the end."""
    predicted_per_token_ms: float
    """Time of each token after the first."""
    predicted_per_second: float
    """Tokens per second after the first."""
    ttft_ms: float
    """Time from the start of the text to its first token. A wait for a slot does not count."""
    total_ms: float
    """Time of the whole text."""
    context_shift_n: int
    """How often the context was full, and a part of the text was left out."""
    target_busy_share: float
    """Share of the time in which the target computed."""
    target_passes_n: int
    """Passes of the target."""
    overhead_us_per_pass: float
    """duo's own time in each pass: sampling, the tree, the plan."""
    pass_ms: dict[str, float]
    """Time of a pass by its number of rows. Measured since the models were loaded, and in earlier runs."""


class DraftTimings(TypedDict, total=False):
    """Figures of texts with guesses: a draft or n-grams, and not `mode="plain"`."""

    draft_n: int
    """Guesses that were verified."""
    draft_n_accepted: int
    """Those of them that were accepted."""
    draft_rounds: int
    """Verifications."""
    draft_acceptance: float
    """`draft_n_accepted / draft_n`."""
    draft_mean_length: float
    """Tokens for each verification: 1 + accepted / verifications."""
    draft_acceptance_by_position: list[float]
    """Guesses accepted at each position, divided by all verifications."""
    draft_n_by_position: list[int]
    """Verifications that had a guess at each position."""
    draft_n_accepted_by_position: list[int]
    """Guesses accepted at each position."""
    draft_rollback_share: float
    """Share of the best path's tokens that the target refused."""
    draft_hit_n: int
    """Passes whose last token was already a node of the draft's tree."""
    draft_hit_tokens_per_pass: float
    """Tokens per pass after such a pass."""
    draft_miss_tokens_per_pass: float
    """Tokens per pass after another pass."""
    draft_side_n: int
    """Passes with accepted tokens in a side branch."""
    draft_ngram_n: int
    """Guesses that came from n-grams alone."""
    draft_ngram_n_accepted: int
    """Those of them that were accepted."""
    step_ms: dict[str, float]
    """Time of a draft step by the number of nodes that it expands. Also from earlier runs."""
    acceptance_by_level: list[float]
    """How often the best guess is right, by its distance from the end of the text. Also from earlier runs; greedy texts
    and the sampled ones of each `accept` are counted separately."""
    acceptance_by_age: list[float]
    """The same of a draft head, by its own steps between the target's newest state and the guess (0 to 3, 4 and more).
    Empty for other drafts."""
    draft_n_by_age: list[int]
    """A head's guesses by that age, as far as the tokens before them were accepted."""
    draft_n_accepted_by_age: list[int]
    """Those of them that were accepted."""
    slowdown: float
    """Time of a target pass while the draft works, divided by its time alone. 1: no slowdown. Also from earlier
    runs."""
    passes_ahead_n: int
    """Passes while the draft ran ahead."""
    passes_by_turn_n: int
    """Passes while the two models took turns."""
    passes_at_rest_n: int
    """Passes while the draft rested, because it did not pay."""
    promised_per_second: dict[str, float]
    """Tokens per second that the planner expects at the text's end: `plain`, `by_turn`, `ahead`. 0: not measured. They
    say why a draft rests."""
    draft_nodes_n: int
    """Nodes that the draft made."""
    draft_steps_n: int
    """Steps of the draft."""
    draft_busy_share: float
    """Share of the time in which the draft computed."""
    draft_hidden_share: float | None
    """Share of the draft's time in which the target computed too. None: the models are on two machines."""
    verify_wait_ms: float
    """Time in which the target waited for guesses."""


class NetworkTimings(TypedDict, total=False):
    """Figures of texts with a model on another machine."""

    network_round_trip_ms: float
    """Round trip: an average over all texts. 0: not measured."""
    network_sent_bytes: int
    """Messages sent and their frames, without the overhead of TCP and TLS."""
    network_received_bytes: int
    """The same of received messages."""
    network_sent_n: int
    """Messages sent."""
    network_received_n: int
    """Messages received."""
    network_lost_n: int
    """How often the host was lost."""


class Timings(TextTimings, DraftTimings, NetworkTimings, total=False):
    """Figures of a text, under llama-server's names where it has them. Empty until the text has ended.

    Names that end in `_ms` are milliseconds, `_us` microseconds, `_per_second` rates per second, `_bytes` bytes, `_n`
    counts. Shares are 0 to 1. Times are of this text, unless the line says more.
    """


def timings(stats: Mapping[str, Any], *, with_draft: bool) -> Timings:
    """The figures that a user sees, of those that the core counts."""
    wall_us = max(1, stats["t_end_us"] - stats["t_begin_us"])
    prompt_us = max(1, stats["prompt_us"])
    predicted = stats["n_predicted"]
    # As in llama-server: the first token comes from the prompt's pass, so generation is timed from there.
    predicted_us = max(1, stats["t_end_us"] - stats["t_first_us"]) if predicted > 1 else max(1, wall_us - prompt_us)
    evaluated = stats["n_prompt"] - stats["n_prompt_cached"]
    out: Timings = {
        "cache_n": stats["n_prompt_cached"],
        "cache_ram_n": stats["n_prompt_returned"],
        "prompt_n": evaluated,
        "prompt_ms": prompt_us / 1e3,
        "prompt_per_token_ms": prompt_us / 1e3 / max(1, evaluated),
        "prompt_per_second": evaluated * 1e6 / prompt_us,
        "predicted_n": predicted,
        "predicted_ms": predicted_us / 1e3,
        "predicted_per_token_ms": predicted_us / 1e3 / (predicted - 1) if predicted > 1 else 0.0,
        "predicted_per_second": max(0, predicted - 1) * 1e6 / predicted_us,
        "ttft_ms": max(0, stats["t_first_us"] - stats["t_begin_us"]) / 1e3,
        "total_ms": wall_us / 1e3,
        "context_shift_n": stats["n_shifts"],
        "target_busy_share": min(1.0, stats["busy_us"] / wall_us),
        "target_passes_n": stats["n_passes"],
        # The part of a pass outside the model and without waiting: sampling, the tree, the plan.
        "overhead_us_per_pass": stats["overhead_us"] / max(1, stats["n_passes"] - 1),
        # ms of a pass by its number of rows, measured since the models were loaded.
        "pass_ms": {str(n): us / 1e3 for n, us in stats["pass_us"].items()},
    }
    if with_draft:
        out.update(_draft_timings(stats, wall_us))
    return out


def _draft_timings(stats: Mapping[str, Any], wall_us: int) -> Timings:
    """wall_us: time of the whole text, in microseconds."""
    verifications = stats["n_verifications"]
    longest = sum(1 for n in stats["n_tested_at"] if n)
    return {
        "draft_n": stats["n_drafted"],
        "draft_n_accepted": stats["n_accepted"],
        "draft_rounds": verifications,
        "draft_acceptance": stats["n_accepted"] / max(1, stats["n_drafted"]),
        "draft_mean_length": 1 + stats["n_accepted"] / max(1, verifications),
        # As in llama.cpp and vLLM: accepted at the position / verifications.
        "draft_acceptance_by_position": [n / max(1, verifications) for n in stats["n_accepted_at"][:longest]],
        "draft_n_by_position": list(stats["n_tested_at"][:longest]),
        "draft_n_accepted_by_position": list(stats["n_accepted_at"][:longest]),
        # Of the best path only: the other branches are alternatives, of which at most one can be right.
        "draft_rollback_share": 1 - stats["n_path_accepted"] / stats["n_path"] if stats["n_path"] else 0.0,
        "draft_hit_n": stats["n_hits"],
        "draft_hit_tokens_per_pass": stats["n_tokens_after_hit"] / max(1, stats["n_after_hit"]),
        "draft_miss_tokens_per_pass": stats["n_tokens_after_miss"]
        / max(1, stats["n_passes"] - 1 - stats["n_after_hit"]),
        "draft_side_n": stats["n_side"],
        "draft_ngram_n": stats["n_ngram"],
        "draft_ngram_n_accepted": stats["n_ngram_accepted"],
        # ms of a draft step by its number of nodes; how often the best guess is right, by level below the root.
        "step_ms": {str(n): us / 1e3 for n, us in stats["step_us"].items()},
        "acceptance_by_level": stats["acceptance"],
        # Of a draft head, by its own steps between the target's newest state and the guess: 0 to 3, 4 and more.
        # How often the best guess is right; guesses in passes below accepted tokens, and of these the right ones.
        "acceptance_by_age": stats["acceptance_of_age"],
        "draft_n_by_age": list(stats["n_tested_of_age"]) if any(stats["n_tested_of_age"]) else [],
        "draft_n_accepted_by_age": list(stats["n_accepted_of_age"]) if any(stats["n_tested_of_age"]) else [],
        "slowdown": stats["slowdown"],
        # Target passes while the draft ran ahead, took turns, and rested because speculation did not pay off.
        "passes_ahead_n": stats["n_passes_in"][0],
        "passes_by_turn_n": stats["n_passes_in"][1],
        "passes_at_rest_n": stats["n_passes_in"][2],
        "promised_per_second": stats["promised"],
        "draft_nodes_n": stats["draft_nodes"],
        "draft_steps_n": stats["draft_steps"],
        "draft_busy_share": min(1.0, stats["draft_busy_us"] / wall_us),
        "draft_hidden_share": min(1.0, stats["draft_hidden_us"] / max(1, stats["draft_busy_us"])),
        "verify_wait_ms": stats["wait_us"] / 1e3,
    }
