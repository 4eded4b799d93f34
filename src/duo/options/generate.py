"""Keywords of one text."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from duo.options.option import (
    N_DRAFT_MAX,
    AutoInt,
    Bias,
    DraftTree,
    Gbnf,
    Int,
    Mode,
    Penalty,
    Probability,
    SpecTypes,
    opt,
)


class GenerateOptions(TypedDict, total=False):
    """Keywords of `generate` and `stream`: one text."""

    max_tokens: Annotated[
        Annotated[Int, Field(ge=-1, le=2**31 - 1)],
        opt(
            -1,
            "Tokens to generate; -1: until the model ends or the context is full.",
            "-n",
            "--predict",
            "--n-predict",
            env="N_PREDICT",
        ),
    ]
    temperature: Annotated[
        Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)],
        opt(0.8, "Temperature; 0: always the most probable token.", "--temp", "--temperature", env="TEMPERATURE"),
    ]
    top_k: Annotated[
        Annotated[Int, Field(ge=-1, le=2**31 - 1)],
        opt(40, "Only the K most probable tokens; 0: all.", "--top-k", env="TOP_K"),
    ]
    top_p: Annotated[
        Probability, opt(0.95, "Only the most probable tokens that sum to P; 1: all.", "--top-p", env="TOP_P")
    ]
    min_p: Annotated[
        Probability, opt(0.05, "Only tokens of at least P times the best one's probability.", "--min-p", env="MIN_P")
    ]
    repeat_penalty: Annotated[
        Annotated[float, Field(ge=1e-3, le=1e3, allow_inf_nan=False)],
        opt(1.0, "Divides the logits of recent tokens; 1: off.", "--repeat-penalty", env="REPEAT_PENALTY"),
    ]
    repeat_last_n: Annotated[
        Annotated[Int, Field(ge=-1, le=2**20)],
        opt(64, "Tokens that the penalties look back; 0: off, -1: all.", "--repeat-last-n"),
    ]
    presence_penalty: Annotated[
        Penalty, opt(0.0, "Lowers tokens that occurred; 0: off.", "--presence-penalty", env="PRESENCE_PENALTY")
    ]
    frequency_penalty: Annotated[
        Penalty,
        opt(0.0, "Lowers tokens by how often they occurred; 0: off.", "--frequency-penalty", env="FREQUENCY_PENALTY"),
    ]
    logit_bias: Annotated[
        dict[int, Bias],
        opt(
            {},
            "Adds BIAS to a token's logit, as 15043+1 or 15043-inf; may be repeated.",
            "-l",
            "--logit-bias",
            metavar="TOKEN(+/-)BIAS",
        ),
    ]
    ignore_eos: Annotated[bool, opt(False, "Never end before -n tokens.", "--ignore-eos/--no-ignore-eos")]
    seed: Annotated[
        Annotated[Int, Field(ge=-1, le=2**64 - 1)], opt(-1, "Seed; -1: a new one each time.", "-s", "--seed")
    ]
    stop: Annotated[
        str | list[str],
        opt([], "Stop before this string; may be repeated.", "-r", "--stop", "--reverse-prompt", metavar="TEXT"),
    ]
    grammar: Annotated[
        Gbnf | None,
        opt(
            None,
            "The text follows this grammar (GBNF, llama.cpp's), and ends when it is complete.",
            "--grammar",
            metavar="GBNF",
        ),
    ]
    json_schema: Annotated[
        Any,
        opt(
            None,
            "The text is JSON that this schema allows; {}: any JSON object.",
            "-j",
            "--json-schema",
            metavar="SCHEMA",
        ),
    ]
    mode: Annotated[
        Mode,
        opt("async", "async: both models at once; sync: they take turns; plain: no draft.", "--mode"),
    ]
    n_draft: Annotated[
        AutoInt,
        opt(
            "auto",
            "Drafted tokens verified at once, at most (sync: exactly); auto: as many as pay, none if none do.",
            "--draft",
            "--draft-n",
            "--draft-max",
            "--spec-draft-n-max",
            env="SPEC_DRAFT_N_MAX DRAFT_MAX",
        ),
    ]
    n_draft_min: Annotated[
        Annotated[Int, Field(ge=0, le=N_DRAFT_MAX)],
        opt(
            0,
            "Fewer drafted tokens than this are not verified.",
            "--draft-min",
            "--draft-n-min",
            "--spec-draft-n-min",
            env="SPEC_DRAFT_N_MIN DRAFT_MIN",
        ),
    ]
    n_draft_branches: Annotated[
        AutoInt,
        opt(
            "auto",
            "Continuations that the draft prepares in one step, at most; auto: as many as pay, up to 8.",
            "--draft-branches",
        ),
    ]
    draft_tree: Annotated[
        DraftTree,
        opt(
            "auto",
            "What is verified of the draft's tree. auto: its best path, or more where that pays; chain: only ever the "
            "best path; dynamic: the --draft most probable nodes (EAGLE-2); or a list of paths of ranks, as "
            "Medusa's and EAGLE's choices: [[0],[1],[0,0],[0,1]].",
            "--draft-tree",
            metavar="auto|chain|dynamic|[[RANK,...],...]",
        ),
    ]
    spec_type: Annotated[
        SpecTypes,
        opt(
            ["draft-simple"],
            "Where guesses come from, comma-separated: draft-simple (the draft model), and one of ngram-simple, "
            "ngram-map-k, ngram-map-k4v (passages of the text itself: summaries, edits of code; needs no draft model); "
            "none.",
            "--spec-type",
            env="SPEC_TYPE",
            metavar="TYPE,TYPE",
        ),
    ]
    ngram_size_n: Annotated[
        Annotated[Int, Field(ge=1, le=1024)],
        opt(
            12,
            "N-grams: tokens that must be the same, at most; down to a quarter of it is tried.",
            "--spec-ngram-simple-size-n",
            "--spec-ngram-map-k-size-n",
            "--spec-ngram-map-k4v-size-n",
        ),
    ]
    ngram_size_m: Annotated[
        Annotated[Int, Field(ge=1, le=1024)],
        opt(
            48,
            "N-grams: tokens proposed, at most.",
            "--spec-ngram-simple-size-m",
            "--spec-ngram-map-k-size-m",
            "--spec-ngram-map-k4v-size-m",
        ),
    ]
    ngram_min_hits: Annotated[
        Annotated[Int, Field(ge=1, le=2**31 - 1)],
        opt(
            1,
            "N-grams: times that a passage must have come before.",
            "--spec-ngram-simple-min-hits",
            "--spec-ngram-map-k-min-hits",
            "--spec-ngram-map-k4v-min-hits",
        ),
    ]
    draft_p_min: Annotated[
        Probability,
        opt(
            0.0,
            "The draft stops where its guess is right with less than this probability, as it sees it.",
            "--draft-p-min",
            "--spec-draft-p-min",
            env="SPEC_DRAFT_P_MIN",
        ),
    ]
    logprobs: Annotated[
        Annotated[Int, Field(ge=0, le=100)] | None,
        opt(None, "Log-probabilities of the target: of each token and its N best alternatives."),
    ]
