"""What makes guesses if the user does not say: the target's MTP layers, a file beside it, and n-grams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from duo.cli import show
from duo.cli.models import TARGET, Models, chosen_models, names_draft
from duo.options.speculation import leaves_guesses, says_plain

if TYPE_CHECKING:
    from duo.models.beside import DraftSource

_OF_GUESSES = ("model_draft", "draft_host", "verify_host", "spec_type")


def left_to_duo(params: dict[str, Any], models: Models) -> bool:
    """The user names a target, and says nothing about guesses."""
    sets_guesses = any(params.get(n) is not None for n in _OF_GUESSES)
    return models.target is not None and models.draft is None and not sets_guesses and not says_plain(params)


def may_add_ngrams(params: dict[str, Any], models: Models, *, drafted: bool) -> bool:
    """The user says nothing about guesses but which file drafts. drafted: there is a draft, whoever has chosen it."""
    if not drafted:
        return left_to_duo(params, models)
    sets_guesses = any(params.get(n) is not None for n in _OF_GUESSES if n != "model_draft")
    return not sets_guesses and leaves_guesses(params, drafted=True)


def draft_of_target(models: Models) -> DraftSource:
    """The draft that the target brings along. Raises DuoError: the target's header cannot be read."""
    from duo.models.beside import DraftSource, find

    return DraftSource() if models.target is None else find(models.target)


def with_targets_own(params: dict[str, Any]) -> tuple[dict[str, Any], Models]:
    """Options and models of a command that measures a draft: what the target brings along stands there as if the user
    had named it. Raises DuoError."""
    models = chosen_models(params)
    has_target = any(params[name] is not None for name in TARGET)
    if not has_target and _without_draft(params.get("pair")):
        params = {**params, "pair": None, "model": models.target}
    elif not has_target:
        return params, models
    if models.draft is not None and not names_draft(params):  # the head that --spec-type names
        return {**params, "model_draft": models.draft}, models
    if not left_to_duo(params, models):
        return params, models
    source = draft_of_target(models)
    tell_of(source)
    if source.path is not None:
        return {**params, "model_draft": source.path}, models._replace(draft=source.path)
    return ({**params, "spec_type": "draft-mtp"} if source.own else params), models


def _without_draft(pair: str | None) -> bool:
    """A pair of the lists whose draft is not a file. Raises DuoError: there is no such pair."""
    from duo.models.pairs import find

    return pair is not None and find(pair, "--pair").pair.draft is None


def tell_of(source: DraftSource) -> None:
    """A file that is the draft, why it is not, or where there is one; why MTP layers are not used."""
    if source.refused:
        show.warn(source.refused)
    if source.path is not None:
        show.warn(f"{Path(source.path).name} {source.where} and drafts for it; -md none does without it")
    elif source.why_not:
        show.warn(f"a file beside the target has the name of a draft, but is not used: {source.why_not}")
    elif source.tip:
        show.warn(f"a known pair has a draft for this target (duo pairs); to download it, add {source.tip}")
