"""Keywords of one text that say who guesses its tokens, how many, and which guesses are accepted."""

from collections.abc import Mapping
from typing import Annotated, Any

from typing_extensions import TypedDict

from duo.options.markers import BeforeValidator, Field
from duo.options.option import (
    N_ACCEPT_TOP_MAX,
    N_DRAFT_MAX,
    AcceptRule,
    AutoInt,
    DraftTree,
    Int,
    Mode,
    Probability,
    SpecTypes,
    Window,
    opt,
)

NGRAMS = "ngram-map-k"  # what guesses where there is nothing else


def _length(value: Any) -> Any:
    return 0 if has_no_length(value) else value


def has_no_length(n_draft: Any) -> bool:
    """Whether this draft length, which may be text, means that nothing guesses."""
    return str(n_draft).strip() in ("0", "none", "off")


def says_plain(options: Mapping[str, Any]) -> bool:
    """Whether these keywords of a text, checked or not, say that nothing guesses."""
    return options.get("mode") == "plain" or has_no_length(options.get("n_draft"))


DraftLength = Annotated[AutoInt, BeforeValidator(_length)]


class SpeculationOptions(TypedDict, total=False):
    """The part of GenerateOptions that speculation depends on."""

    mode: Annotated[
        Mode,
        opt("async", "async: both models at once; sync: they take turns; plain: no draft.", "--mode"),
    ]
    n_draft: Annotated[
        DraftLength,
        opt(
            "auto",
            "Most drafted tokens that a pass verifies (sync: exactly that many); auto: as many as pay off, or none; 0 "
            "or none: nothing guesses, as with --mode plain.",
            "--draft",
            "--draft-n",
            "--draft-max",
            "--spec-draft-n-max",
            env="SPEC_DRAFT_N_MAX DRAFT_MAX",
            metavar="N|auto|none",
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
    draft_window: Annotated[
        Window,
        opt(
            "auto",
            "How much of the prompt the draft reads: its first tokens and its last N. auto: as much as pays off, if "
            "both models use the same cores, and else all of it; 0 or all: all of it. Draft heads and drafts with a "
            "recurrent state read all.",
            "--draft-window",
            metavar="auto|all|N",
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
            "EAGLE-3 head, MTP layers, a DFlash or DSpark head), draft-eagle3, draft-mtp, draft-dflash or draft-dspark "
            "(the same, and it must be that; without -md, draft-mtp takes the target's own MTP layers), and one of "
            "ngram-simple, ngram-map-k, ngram-map-k4v (passages that occur in the text itself, for summaries and edits "
            "of code; they need no draft; ngram-mod means ngram-map-k, ngram-cache means ngram-map-k4v); or none.",
            "--spec-type",
            env="SPEC_TYPE",
            metavar="TYPE,TYPE",
        ),
    ]
    ngram_size_n: Annotated[
        Annotated[Int, Field(ge=1, le=1024)],
        opt(
            12,
            "N-grams: most tokens that must match; shorter matches are tried too, down to two.",
            "--spec-ngram-simple-size-n",
            "--spec-ngram-map-k-size-n",
            "--spec-ngram-map-k4v-size-n",
            "--spec-ngram-mod-n-match",
            "--spec-ngram-size-n",
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
            "--spec-ngram-mod-n-max",
            "--spec-ngram-size-m",
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
            "--spec-ngram-min-hits",
        ),
    ]
    accept: Annotated[
        AcceptRule,
        opt(
            "noise",
            "How guesses are accepted in a text with a temperature. noise: the text depends on target, prompt and seed "
            "alone; rejection: the target's exact distribution, but the text depends on the draft as well; typical and "
            "top-n are lossy: they accept more guesses than the target's distribution allows.",
            "--accept",
        ),
    ]
    posterior_threshold: Annotated[
        Probability,
        opt(
            0.09,
            "typical: accept any guess to which the target gives a higher probability than P.",
            "--posterior-threshold",
        ),
    ]
    posterior_alpha: Annotated[
        Probability,
        opt(
            0.3,
            "typical: accept a guess above P * exp(-entropy) too, so that less probable ones pass where the target "
            "is unsure.",
            "--posterior-alpha",
        ),
    ]
    accept_top: Annotated[
        Annotated[Int, Field(ge=1, le=N_ACCEPT_TOP_MAX)],
        opt(3, "top-n: accept a guess that is among the target's N most probable tokens.", "--accept-top"),
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
