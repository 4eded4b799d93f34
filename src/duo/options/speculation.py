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

_LENGTHS: dict[str, tuple[Any, ...]] = {"n_draft": ("auto",), "n_draft_min": (0, "0"), "draft_tree": ("auto",)}
NGRAMS = "ngram-map-k"  # the kind of n-grams that guesses if the user names none


def _length(value: Any) -> Any:
    return 0 if has_no_length(value) else value


def has_no_length(n_draft: Any) -> bool:
    """Whether this draft length, which may be text, means that nothing guesses."""
    return str(n_draft).strip() in ("0", "none", "off")


def says_plain(options: Mapping[str, Any]) -> bool:
    """Whether these keywords of a text, checked or not, say that nothing guesses."""
    return options.get("mode") == "plain" or has_no_length(options.get("n_draft"))


def leaves_guesses(options: Mapping[str, Any], *, drafted: bool) -> bool:
    """Whether these keywords of a text, checked or not, let duo add guesses. Absent, None or the default: the user
    chose nothing. drafted: there is a draft; a length bounds the whole pass, and the draft's guesses fill it."""
    sets_length = drafted and any(options.get(name) not in (None, *d) for name, d in _LENGTHS.items())
    return not sets_length and not says_plain(options)


DraftLength = Annotated[AutoInt, BeforeValidator(_length)]


class SpeculationOptions(TypedDict, total=False):
    """The part of GenerateOptions that speculation depends on."""

    mode: Annotated[
        Mode,
        opt("async", "async: both models work at once; sync: they take turns; plain: no draft.", "--mode"),
    ]
    n_draft: Annotated[
        DraftLength,
        opt(
            "auto",
            "Maximum number of guesses in a pass (sync: the exact number). auto: as many as pay off, or none. A "
            "number is for the draft alone: n-grams then guess beside it only if --spec-type names them. 0 or none: no "
            "guesses, as with --mode plain.",
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
            "Do not verify fewer guesses than this.",
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
            "Maximum number of continuations that the draft prepares in one step. auto: as many as pay off, up to 8.",
            "--draft-branches",
        ),
    ]
    draft_window: Annotated[
        Window,
        opt(
            "auto",
            "How much of the prompt the draft reads: the first 16 tokens and the last N. auto: as much as pays off "
            "if both models use the same cores, otherwise all; 0 or all: all. Draft heads and drafts with a "
            "recurrent state always read all.",
            "--draft-window",
            metavar="auto|all|N",
        ),
    ]
    draft_tree: Annotated[
        DraftTree,
        opt(
            "auto",
            "Part of the draft's tree to verify. auto: the best path, or more where that pays off; chain: always "
            "the best path; dynamic: the --draft most probable nodes (EAGLE-2); or a list of paths of ranks, as in "
            "Medusa and EAGLE: [[0],[1],[0,0],[0,1]].",
            "--draft-tree",
            metavar="auto|chain|dynamic|[[RANK,...],...]",
        ),
    ]
    spec_type: Annotated[
        SpecTypes,
        opt(
            ["draft-simple"],
            "Sources of guesses, comma-separated. draft-simple: the draft of -md, whatever its file is (a model, or "
            "an EAGLE-3, MTP, DFlash or DSpark head). draft-eagle3, draft-mtp, draft-dflash, draft-dspark: the "
            "same, but it must be of this kind; without -md, draft-mtp uses the target's own MTP layers. "
            "ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod (one of them): passages that occur in the text "
            "itself, for summaries and edits of code, with ngram-mod also in earlier texts; they need no draft. "
            "ngram-cache means ngram-map-k4v. none: no guesses. Default: draft-simple; the commands and draft=auto add "
            "ngram-map-k on a CPU, where it cannot change the text. draft-simple, if you give it, is the draft alone.",
            "--spec-type",
            env="SPEC_TYPE",
            metavar="TYPE,TYPE",
        ),
    ]
    ngram_size_n: Annotated[
        Annotated[Int, Field(ge=1, le=1024)],
        opt(
            12,
            "N-grams: number of tokens that must match. Shorter matches are tried too, down to two.",
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
            "N-grams: maximum number of proposed tokens.",
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
            "Rule by which guesses are accepted at temperatures above 0. noise: the text depends only on target, "
            "prompt and seed; rejection: the text has the target's exact distribution, but depends on the draft as "
            "well; typical and top-n are lossy: they accept more guesses than the target's distribution allows.",
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
            "typical: also accept a guess above P * exp(-entropy), so that less probable guesses pass where the "
            "target is unsure.",
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
