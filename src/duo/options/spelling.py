"""The options of `Duo` that say how tokens become text."""

from typing import Annotated

from typing_extensions import TypedDict

from duo.options.option import opt


class SpellingOptions(TypedDict, total=False):
    """Options of both models."""

    special: Annotated[
        bool,
        opt(False, "Write control tokens (such as <|im_start|>) into the text as well, except the one that ends it.",
            "-sp", "--special/--no-special"),
    ]  # fmt: skip
