"""A prompt for the middle of a text, whose beginning and end are known (fill in the middle, arXiv 2207.14255)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from duo.errors import BadValueError
from duo.generation.job import check_text, prompt_tokens

if TYPE_CHECKING:
    from duo import _core
    from duo.generation.job import Prompt

MARK = "☺"  # llama_cpp's


def _suffix(model: _core.Model, suffix: str) -> list[int]:
    """Tokens of a text that something stands before: a tokenizer may put a space before the first word of a text."""
    mark, ids = model.tokenize(MARK, False), model.tokenize(MARK + suffix, False)
    return ids[len(mark) :] if ids[: len(mark)] == mark else model.tokenize(suffix, False)


def infill(model: _core.Model, prompt: Prompt, suffix: str, *, suffix_first: bool) -> Sequence[int]:
    """Token ids: prefix, suffix, middle, each behind its token, in llama_cpp's order, with BOS and EOS where the model
    wants them. suffix_first: llama_cpp's spm_infill.

    Raises BadValueError: the model has no such tokens, or a text cannot be read.
    """
    before, after, middle = model.fim_tokens
    if before < 0 or after < 0:
        raise BadValueError(
            "suffix needs a model that was trained to fill in the middle, and this one has no tokens for that; leave "
            "suffix out"
        )
    check_text(suffix, "the suffix")
    if isinstance(prompt, str):
        check_text(prompt, "the prompt")
        ids = model.tokenize(prompt, False) if prompt else []
    else:
        prompt_ids = prompt if isinstance(prompt, bytes | bytearray) else list(prompt)
        ids = [] if prompt_ids == [] else prompt_tokens(model, prompt_ids)  # which refuses bytes
    first, last = [before, *ids], [after, *(_suffix(model, suffix) if suffix else [])]
    v = model.vocabulary
    begin, end = [v.bos] * (v.add_bos and v.bos >= 0), [v.eos] * (v.add_eos and v.eos >= 0)
    return [*begin, *(last + first if suffix_first else first + last), *[middle] * (middle >= 0), *end]
