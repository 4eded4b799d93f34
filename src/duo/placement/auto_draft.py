"""`draft="auto"`: what guesses if the user names nothing, as the commands choose it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duo.errors import BadValueError
from duo.models.beside import find
from duo.models.paths import PathLike, path
from duo.options.speculation import NGRAMS, says_plain

if TYPE_CHECKING:
    from duo.generation.texts import Texts

AUTO = "auto"
_OTHERS = ("draft_host", "verify_host", "spec_type")


def chosen(model: PathLike | None, options: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The draft's path, or None, and the options, in which the target's own MTP layers may be named. Raises
    BadValueError: another option chooses the guesses; and what reading the target's header raises."""
    for name in _OTHERS:
        if options.get(name) is not None:
            raise BadValueError(f'draft="auto" chooses what guesses, and so does {name}; leave one of them out')
    if model is None:
        raise BadValueError('draft="auto" looks for what the target brings along, and no target was given; give model')
    if says_plain(options):
        return None, options
    draft = find(path(model, "target"))
    return draft.path, {**options, "spec_type": ["draft-mtp"]} if draft.own else options


def add_ngrams(d: Texts, accept: str | None) -> None:
    """N-grams guess where texts repeat themselves, beside a draft model if there is one, if that can change no text and
    costs next to nothing: the target has the same bits at every width, and takes wrong guesses back without computing
    again. accept: the rule of acceptance; None: the default."""
    m, draft = d.engine.target, d.engine.draft
    if m is None or accept not in (None, "noise") or (draft is not None and draft.head):
        return
    if not m.devices and m.same_bits and m.can_rollback:
        d.defaults["spec_type"] = [NGRAMS] if draft is None else ["draft-simple", NGRAMS]
        d.ngrams_unasked = True
