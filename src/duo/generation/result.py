"""The output of a text: chunks while it runs, a result and its timings at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from typing_extensions import TypedDict

FinishReason = Literal["stop", "length", "cancelled", "error"]


class Timings(TypedDict, total=False):
    """Figures of a text under llama-server's names, and what only duo has. Empty until the text has ended.

    Names that end in _ms are milliseconds, _us microseconds, _per_second rates per second, _bytes bytes, _n counts;
    shares are 0 to 1.
    """

    cache_n: int  # tokens of the prompt that were in the cache
    cache_ram_n: int  # of these, back from --cache-ram
    prompt_n: int  # tokens of the prompt that were computed
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float  # from the first token to the end
    predicted_per_token_ms: float
    predicted_per_second: float
    ttft_ms: float  # time to the first token
    total_ms: float
    context_shift_n: int  # times that the context was full and a part of the text was left out
    target_busy_share: float
    target_passes_n: int
    overhead_us_per_pass: float  # of duo itself: sampling, the tree, the plan
    pass_ms: dict[str, float]  # a pass of the target by its rows, measured since the models were loaded

    # Only where guesses were wanted: a draft or n-grams, and no mode="plain".
    draft_n: int  # drafted tokens that were verified
    draft_n_accepted: int
    draft_rounds: int  # verifications
    draft_acceptance: float  # a share
    draft_mean_length: float  # tokens for each verification
    draft_acceptance_by_position: list[float]
    draft_n_by_position: list[int]  # verifications with a guess there
    draft_n_accepted_by_position: list[int]
    draft_rollback_share: float
    draft_hit_n: int
    draft_hit_tokens_per_pass: float
    draft_miss_tokens_per_pass: float
    draft_side_n: int
    draft_ngram_n: int
    draft_ngram_n_accepted: int
    step_ms: dict[str, float]  # a step of the draft by its nodes
    acceptance_by_level: list[float]
    acceptance_by_age: list[float]  # of a draft head's best guess; empty: another draft
    draft_n_by_age: list[int]
    draft_n_accepted_by_age: list[int]
    slowdown: float  # of a pass while the draft works; 1: none
    passes_ahead_n: int
    passes_by_turn_n: int
    passes_at_rest_n: int
    # Tokens per second that the planner expects of this text: plain, by_turn, ahead. 0: not measured.
    promised_per_second: dict[str, float]
    draft_nodes_n: int
    draft_steps_n: int
    draft_busy_share: float
    draft_hidden_share: float | None  # None: the models are on two machines
    verify_wait_ms: float

    # Only with a model on another machine.
    network_round_trip_ms: float  # 0: not measured
    network_sent_bytes: int
    network_received_bytes: int
    network_sent_n: int
    network_received_n: int
    network_lost_n: int


@dataclass(frozen=True)
class TokenLogprobs:
    """The target's log-probabilities (nats) for one token, before any filter; with post_sampling_probs, after all."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token, logprob), most probable first


@dataclass(frozen=True)
class Chunk:
    """One token of the text. Its text is empty while a character or a possible stop string is incomplete."""

    text: str
    token: int | None = None  # None: the last chunk, which only says why the text ended
    from_draft: bool = False  # whether the draft guessed it and the target agreed
    finish_reason: FinishReason | None = None
    logprobs: TokenLogprobs | None = None
    t_us: int = 0  # when the target committed it; microseconds on a monotonic clock


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
        verifications = stats["n_verifications"]
        longest = sum(1 for n in stats["n_tested_at"] if n)
        guesses: Timings = {
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
        out.update(guesses)
    return out


@dataclass(frozen=True)
class Result:
    """A finished text."""

    text: str
    tokens: tuple[int, ...]
    from_draft: tuple[bool, ...]  # one for each token
    finish_reason: FinishReason | Literal[""]  # empty: the text has not ended
    timings: Timings = field(default_factory=lambda: Timings())
    prompt_tokens: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    seed: int = 0
    warning: str = ""
