"""A chat whose last message is edited: a target with a recurrent state goes back to where that message began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sizes import mostly_daily
from tiny_models import tiny

from duo import Duo
from duo.compat.llama_cpp.chat_prompt import ChatRequest
from duo.models.demo import demo_pair

DRAFT = demo_pair()[1]
OPTIONS: dict[str, Any] = {"n_ctx": 1024, "strict": True, "chat_template": "chatml", "temperature": 0, "max_tokens": 8}
WORDS = "the king said that he would give half of his land away, and the old clock struck twelve times. "
HISTORY = [
    {"role": "system", "content": "You tell stories."},
    {"role": "user", "content": WORDS * 4},
    {"role": "assistant", "content": WORDS * 4},
]
LONG, SHORT = WORDS * 5, "And then?"
NAMES = ["qwen35", "nemotron_h", "jamba", "mamba"]


def asked(question: str) -> list[dict[str, str]]:
    return [*HISTORY, {"role": "user", "content": question}]


def answer(d: Duo, question: str) -> str:
    return str(d.create_chat_completion(messages=asked(question))["choices"][0]["message"]["content"])


@pytest.mark.full
@pytest.mark.parametrize("name", mostly_daily(NAMES, ["qwen35", "jamba"]))
@pytest.mark.parametrize(
    ("n_parallel", "first", "second"),
    [
        (1, LONG, "But the clock " + LONG),
        (2, LONG, SHORT),
        pytest.param(1, SHORT, "Why?", marks=pytest.mark.proof),
        pytest.param(2, LONG, "But the clock " + LONG, marks=pytest.mark.proof),
    ],
)
def test_an_edited_question_is_all_that_is_read(
    name: str, n_parallel: int, first: str, second: str, tmp_path: Path
) -> None:
    target = tiny(name, DRAFT, tmp_path / "target.gguf")
    with Duo(target, **OPTIONS) as fresh:
        want = answer(fresh, second)
    with Duo(target, n_parallel=n_parallel, **OPTIONS) as d:
        n_before = len(
            d.tokenize(d.chat_template.render(HISTORY, add_generation_prompt=False), add_bos=False, special=True)
        )
        answer(d, first)
        assert answer(d, second) == want
        assert n_before - 2 <= d.timings["cache_n"] <= n_before + 20


@pytest.mark.parametrize("name", mostly_daily(NAMES, ["qwen35", "jamba"]))
def test_a_chat_that_goes_on_can_go_back(name: str, tmp_path: Path) -> None:
    """Its last turn is short, so nothing of it would be worth a mark by itself."""
    target = tiny(name, DRAFT, tmp_path / "target.gguf")
    with Duo(target, **OPTIONS) as d:
        text = answer(d, LONG)
        chat = [*asked(LONG), {"role": "assistant", "content": text}]
        for question in ("And then?", "Why did it?"):
            d.create_chat_completion(messages=[*chat, {"role": "user", "content": question}])
        n_before = len(
            d.tokenize(d.chat_template.render(chat, add_generation_prompt=False), add_bos=False, special=True)
        )
        assert n_before - 3 <= d.timings["cache_n"] <= n_before + 20


def test_only_recurrent_targets_need_it(tmp_path: Path) -> None:
    with Duo(DRAFT, n_ctx=512, chat_template="chatml") as d:
        assert "prompt_mark" not in d.chat_prompt(asked(SHORT), ChatRequest()).shape
    with Duo(tiny("mamba", DRAFT, tmp_path / "target.gguf"), **OPTIONS) as d:
        for messages, least in ((asked(SHORT), 100), (asked(SHORT)[1:2], 0)):
            found = d.chat_prompt(messages, ChatRequest())
            n = found.shape["prompt_mark"]
            assert (n > least) if least else (n == 0)
            assert n < len(found.tokens)
        # Whatever a caller says, the text is the same.
        prompt = "once upon a time there was a king"
        texts = {d.generate(prompt, prompt_mark=n, ignore_eos=True).tokens for n in (0, 1, 5, 200, 2**31 - 1)}
        assert len(texts) == 1


def test_a_template_that_wants_a_question_at_the_end(tmp_path: Path) -> None:
    template = (
        "{% if messages[-1].role != 'user' %}{{ raise_exception('ask') }}{% endif %}"
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    )
    target = tiny("mamba", DRAFT, tmp_path / "target.gguf")
    with Duo(target, **{**OPTIONS, "chat_template": template}) as d:
        assert d.chat_prompt(asked(SHORT), ChatRequest()).shape["prompt_mark"] == 0
        assert answer(d, SHORT) == answer(d, SHORT)
