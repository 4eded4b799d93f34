"""The texts of a request: one check for all, and a hook and a seed for each."""

from collections.abc import Iterator
from typing import Any

import pytest

from duo import Duo
from duo.errors import BadValueError
from duo.server import build_jobs
from duo.server.build_jobs import texts_of
from duo.server.schemas import PromptFields

PROMPTS = [("Once", [5, 6]), ("upon", [7]), ("", [])]


@pytest.fixture(scope="module")
def two_slots() -> Iterator[Duo]:
    with Duo(n_ctx=512, n_parallel=2) as d:
        yield d


def test_options_are_checked_once_for_all_prompts(two_slots: Duo, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = build_jobs.checked_options, []
    monkeypatch.setattr(build_jobs, "checked_options", lambda *a: calls.append(a) or real(*a))
    texts = texts_of(two_slots, PromptFields(prompt="", n=2, seed=9), PROMPTS)
    assert len(calls) == 1
    assert [t.prompt for t in texts] == ["Once", "Once", "upon", "upon", "", ""]
    assert [t.job.tokens for t in texts] == [[5, 6], [5, 6], [7], [7], *[[two_slots.token_bos()]] * 2]
    assert [t.job.seed for t in texts] == [9, 10] * 3 and [t.index for t in texts] == [*range(6)]


def test_prompts_without_a_seed_draw_one_each(two_slots: Duo) -> None:
    texts = texts_of(two_slots, PromptFields(prompt="", n=1), PROMPTS)
    assert len({t.job.seed for t in texts}) == 3


def test_each_text_has_a_hook_of_its_own(two_slots: Duo, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has ended lets its functions go."""
    monkeypatch.setitem(two_slots.defaults, "logits_processor", lambda ids, scores: scores)  # type: ignore[misc]
    hooks = [t.job.hook for t in texts_of(two_slots, PromptFields(prompt="", n=2), PROMPTS)]
    assert None not in hooks and len({id(h) for h in hooks}) == 6


def test_prompts_that_are_only_read(two_slots: Duo) -> None:
    (text,) = texts_of(two_slots, PromptFields(prompt="", n_predict=0), PROMPTS[:1])
    assert (text.job.options["max_tokens"], text.job.options["mode"]) == (0, "plain")


def test_a_wrong_value_is_a_sentence(two_slots: Duo) -> None:
    with pytest.raises(BadValueError, match="stop string"):
        texts_of(two_slots, PromptFields(prompt="", stop="\0"), PROMPTS)


@pytest.mark.parametrize(
    "field",
    [{"min_keep": 3}, {"grammar_lazy": True}, {"preserved_tokens": ["a"]}, {"reasoning_budget_end_tag": "</t>"}],
)
def test_fields_that_would_change_the_text_are_refused(two_slots: Duo, field: dict[str, Any]) -> None:
    with pytest.raises(BadValueError, match=f"{next(iter(field))}.*leave it out"):
        texts_of(two_slots, PromptFields.model_validate({"prompt": "", **field}), PROMPTS)
    no = {"min_keep": 0, "grammar_lazy": False, "grammar_triggers": [], "preserved_tokens": []}  # as in its settings
    assert texts_of(two_slots, PromptFields.model_validate({"prompt": "", **no}), PROMPTS)
