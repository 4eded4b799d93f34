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
            "Requantise a draft model's weights on the CPU to 4 bits while they are read. auto: wide types and those "
            "without kernels of duo's, to the type that is fastest on this machine, if the draft is at least 64 MB.",
            "--draft-pack",
        ),
    ]
    draft_vocab: Annotated[
        DraftVocab,
        opt(
            "auto",
            "Tokens that a draft model on the CPU computes logits for: the first N ids, those of control tokens, and "
            "those that the text has. all: the whole vocabulary. auto: 32768 of a vocabulary of more than 65536.",
            "--draft-vocab",
            metavar="N",
        ),
    ]
