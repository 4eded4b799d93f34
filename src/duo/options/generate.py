"""Keywords of one text."""

from __future__ import annotations

from typing import Annotated, Any

from typing_extensions import TypedDict

from duo.options.markers import Field
from duo.options.option import (
    N_DRAFT_MAX,
    AutoInt,
    Bias,
    Breakers,
    DraftTree,
    FilePath,
    Gbnf,
    Hook,
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
        opt(
            0.8, "Temperature; 0: always choose the most probable token.", "--temp", "--temperature", env="TEMPERATURE"
        ),
    ]
    top_k: Annotated[
        Annotated[Int, Field(ge=-1, le=2**31 - 1)],
        opt(40, "Keep only the K most probable tokens; 0: all.", "--top-k", env="TOP_K"),
    ]
    top_p: Annotated[
        Probability, opt(0.95, "Keep only the most probable tokens that sum to P; 1: all.", "--top-p", env="TOP_P")
    ]
    min_p: Annotated[
        Probability,
        opt(0.05, "Keep only tokens with at least P times the best token's probability.", "--min-p", env="MIN_P"),
    ]
    typical_p: Annotated[
        Probability,
        opt(1.0, "Keep the tokens whose surprise is nearest to the entropy, up to a sum of P; 1: all.", "--typical",
            "--typical-p"),
    ]  # fmt: skip
    top_n_sigma: Annotated[
        Annotated[float, Field(ge=-1.0, le=1e4, allow_inf_nan=False)],
        opt(-1.0, "Keep only logits within N standard deviations of the best; 0 or less: all.", "--top-nsigma",
            "--top-n-sigma"),
    ]  # fmt: skip
    xtc_probability: Annotated[
        Probability,
        opt(0.0, "Chance that XTC removes the most probable tokens; 0: never.", "--xtc-probability"),
    ]
    xtc_threshold: Annotated[
        Probability,
        opt(0.1, "XTC removes tokens of at least this probability, except the least probable one; above 0.5: none.",
            "--xtc-threshold"),
    ]  # fmt: skip
    dynatemp_range: Annotated[
        Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)],
        opt(0.0, "The temperature varies by up to this much with the entropy; 0: never.", "--dynatemp-range"),
    ]
    dynatemp_exponent: Annotated[
        Annotated[float, Field(ge=0.0, le=1e3, allow_inf_nan=False)],
        opt(1.0, "Exponent of the entropy there; above 1: lower temperatures.", "--dynatemp-exp"),
    ]
    repeat_penalty: Annotated[
        Annotated[float, Field(ge=1e-3, le=1e3, allow_inf_nan=False)],
        opt(1.0, "Divide the logits of recent tokens by this; 1: off.", "--repeat-penalty", env="REPEAT_PENALTY"),
    ]
    repeat_last_n: Annotated[
        Annotated[Int, Field(ge=-1, le=2**20)],
        opt(64, "Number of recent tokens that the penalties count; 0: off, -1: all.", "--repeat-last-n"),
    ]
    presence_penalty: Annotated[
        Penalty,
        opt(0.0, "Lower the logits of tokens that have occurred; 0: off.", "--presence-penalty",
            env="PRESENCE_PENALTY"),
    ]  # fmt: skip
    frequency_penalty: Annotated[
        Penalty,
        opt(0.0, "Lower the logits of tokens by how often they have occurred; 0: off.", "--frequency-penalty",
            env="FREQUENCY_PENALTY"),
    ]  # fmt: skip
    dry_multiplier: Annotated[
        Annotated[float, Field(ge=0.0, le=1e4, allow_inf_nan=False)],
        opt(0.0, "DRY: penalty for a token that would continue a repetition; 0: off.", "--dry-multiplier"),
    ]
    dry_base: Annotated[
        Annotated[float, Field(ge=1.0, le=1e4, allow_inf_nan=False)],
        opt(1.75, "DRY: factor of the penalty for each further token of the repetition.", "--dry-base"),
    ]
    dry_allowed_length: Annotated[
        Annotated[Int, Field(ge=0, le=2**20)],
        opt(2, "DRY: repetitions shorter than this have no penalty.", "--dry-allowed-length"),
    ]
    dry_penalty_last_n: Annotated[
        Annotated[Int, Field(ge=-1, le=2**20)],
        opt(
            64,
            "DRY: number of recent tokens that are searched for repetitions; 0: off, -1: all.",
            "--dry-penalty-last-n",
        ),
    ]
    dry_sequence_breakers: Annotated[
        Breakers,
        opt(
            ["\n", ":", '"', "*"],
            "DRY: a repetition ends at this string; may be repeated, and replaces the defaults: newline, colon, "
            "quotation mark and asterisk. none: no such strings.",
            "--dry-sequence-breaker",
            metavar="TEXT",
        ),
    ]
    logit_bias: Annotated[
        dict[int, Bias],
        opt(
            {},
            "Add BIAS to a token's logit, such as 15043+1 or 15043-inf; may be repeated.",
            "-l",
            "--logit-bias",
            metavar="TOKEN(+/-)BIAS",
        ),
    ]
    ignore_eos: Annotated[bool, opt(False, "Do not end before -n tokens.", "--ignore-eos/--no-ignore-eos")]
    seed: Annotated[
        Annotated[Int, Field(ge=-1, le=2**64 - 1)], opt(-1, "Random seed; -1: a new one each time.", "-s", "--seed")
    ]
    stop: Annotated[
        str | list[str],
        opt([], "Stop before this string; may be repeated.", "-r", "--stop", "--reverse-prompt", metavar="TEXT"),
    ]
    grammar: Annotated[
        Gbnf | None,
        opt(
            None,
            "Constrain the text to this grammar (llama.cpp's GBNF); it ends when the grammar is complete.",
            "--grammar",
            metavar="GBNF",
        ),
    ]
    json_schema: Annotated[
        Any,
        opt(
            None,
            "Constrain the text to JSON that this schema allows; {}: any JSON object.",
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
            "Most drafted tokens that a pass verifies (sync: exactly that many); auto: as many as pay off, or none.",
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
            "Do not verify fewer drafted tokens than this.",
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
            "Most continuations that the draft prepares in one step; auto: as many as pay off, up to 8.",
            "--draft-branches",
        ),
    ]
    draft_tree: Annotated[
        DraftTree,
        opt(
            "auto",
            "Which part of the draft's tree to verify. auto: its best path, or more where that pays off; chain: always "
            "the best path; dynamic: the --draft most probable nodes (EAGLE-2); or a list of paths of ranks, like "
            "Medusa's and EAGLE's choices: [[0],[1],[0,0],[0,1]].",
            "--draft-tree",
            metavar="auto|chain|dynamic|[[RANK,...],...]",
        ),
    ]
    spec_type: Annotated[
        SpecTypes,
        opt(
            ["draft-simple"],
            "Sources of guesses, comma-separated: draft-simple (the draft of -md; its file says if it is a model, an "
            "EAGLE-3 head or MTP layers), draft-eagle3 or draft-mtp (the same, and it must be that; without -md, "
            "draft-mtp takes the target's own MTP layers), and one of ngram-simple, ngram-map-k, ngram-map-k4v "
            "(passages that occur in the text itself, for summaries and edits of code; they need no draft); or none.",
            "--spec-type",
            env="SPEC_TYPE",
            metavar="TYPE,TYPE",
        ),
    ]
    ngram_size_n: Annotated[
        Annotated[Int, Field(ge=1, le=1024)],
        opt(
            12,
            "N-grams: most tokens that must match; shorter matches are tried too, down to a quarter of this.",
            "--spec-ngram-simple-size-n",
            "--spec-ngram-map-k-size-n",
            "--spec-ngram-map-k4v-size-n",
        ),
    ]
    ngram_size_m: Annotated[
        Annotated[Int, Field(ge=1, le=1024)],
        opt(
            48,
            "N-grams: most tokens that are proposed.",
            "--spec-ngram-simple-size-m",
            "--spec-ngram-map-k-size-m",
            "--spec-ngram-map-k4v-size-m",
        ),
    ]
    ngram_min_hits: Annotated[
        Annotated[Int, Field(ge=1, le=2**31 - 1)],
        opt(
            1,
            "N-grams: how often a passage must have occurred before.",
            "--spec-ngram-simple-min-hits",
            "--spec-ngram-map-k-min-hits",
            "--spec-ngram-map-k4v-min-hits",
        ),
    ]
    draft_p_min: Annotated[
        Probability,
        opt(
            0.0,
            "The draft stops at a guess that it considers less probable than this.",
            "--draft-p-min",
            "--spec-draft-p-min",
            env="SPEC_DRAFT_P_MIN",
        ),
    ]
    prompt_cache: Annotated[
        FilePath | None,
        opt(
            None,
            "File that keeps the models' caches of the prompt for later texts. Use only files that you trust.",
            "--prompt-cache",
            metavar="FILE",
        ),
    ]
    prompt_cache_all: Annotated[
        bool, opt(False, "Keep the generated text in it as well.", "--prompt-cache-all/--no-prompt-cache-all")
    ]
    prompt_cache_ro: Annotated[
        bool, opt(False, "Read the prompt cache, but do not write it.", "--prompt-cache-ro/--no-prompt-cache-ro")
    ]
    cache_prompt: Annotated[bool, opt(True, "Take what the caches hold of the prompt; false: evaluate all of it.")]
    id_slot: Annotated[
        Annotated[Int, Field(ge=-1, le=15)],
        opt(-1, "The place in the target's cache, if it is free; -1: the one that has most of the prompt."),
    ]
    logprobs: Annotated[
        Annotated[Int, Field(ge=0, le=100)] | None,
        opt(None, "The target's log-probabilities of each token and of its N best alternatives."),
    ]
    logits_processor: Annotated[
        Hook,
        opt(None, "A function (input_ids, scores) -> scores, or a list of them; called for each token."),
    ]
    stopping_criteria: Annotated[
        Hook,
        opt(None, "A function (input_ids, logits) -> bool; true: the text ends before the next token."),
    ]
