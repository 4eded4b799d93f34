"""The options of `Duo` that make a draft model cheaper than its file. They never change the text."""

from typing import Annotated, Literal

from typing_extensions import TypedDict

from duo.options.markers import Field
from duo.options.option import Int, opt

DraftPack = Literal["auto", "off", "q4_0", "iq4_nl"]
DraftVocab = Annotated[Int, Field(ge=1, le=2**31 - 1)] | Literal["auto", "all"]


class CheapDraftOptions(TypedDict, total=False):
    """What a draft model on the CPU computes with."""

    draft_pack: Annotated[
        DraftPack,
        opt(
            "auto",
            "Requantise weights of a draft model on the CPU to 4 bits while they are read. auto: wide types, and "
            "types that duo has no kernels for, become the type that is fastest here; drafts below 64 MB stay as "
            "they are. off: never.",
            "--draft-pack",
        ),
    ]
    draft_vocab: Annotated[
        DraftVocab,
        opt(
            "auto",
            "Number of tokens that a draft model on the CPU computes logits for: the first N ids, control tokens, "
            "and tokens of the text. all: the whole vocabulary. auto: 32768 if the vocabulary has more than 65536.",
            "--draft-vocab",
            metavar="N",
        ),
    ]
