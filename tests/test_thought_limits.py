"""--reasoning-budget: a thought ends at its limit, in every mode with the same text."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from served import TEMPLATE, Server, served
from sizes import mostly_daily

from duo import BadValueError, Duo

PROMPT = "Once upon a time <think>"
SAID = " (that is enough)\n"
ASKED: dict[str, Any] = {
    "max_tokens": 40, "seed": 5, "temperature": 0.8, "ignore_eos": True, "reasoning_budget": 6,
    "reasoning_budget_message": SAID,
}  # fmt: skip
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def duo() -> Iterator[Duo]:
    with Duo(n_ctx=512, n_parallel=2) as d:
        yield d


def test_a_thought_ends_at_its_limit_and_the_text_is_the_same_in_every_mode(duo: Duo) -> None:
    free = duo.generate(PROMPT, **{**ASKED, "reasoning_budget": -1}).tokens
    texts = [duo.generate(PROMPT, **ASKED, mode=mode, n_draft=n) for mode in ("plain", "sync", "async") for n in (2, 6)]
    for r in texts:
        assert r.tokens == texts[0].tokens
        assert r.tokens[:6] == free[:6] and r.tokens != free
        thought, _, answer = r.text.partition(SAID + "</think>")
        assert duo.tokenize(PROMPT + thought)[: len(r.tokens)] and answer
    assert any(r.timings.get("draft_n_accepted", 0) for r in texts)


@pytest.mark.parametrize("budget", [0, 1, 25])
def test_any_budget(duo: Duo, budget: int) -> None:
    r = duo.generate(PROMPT, **{**ASKED, "reasoning_budget": budget})
    n = len(duo.tokenize(SAID + "</think>", add_bos=False, special=True))
    ends = duo.decode(r.tokens[budget : budget + n])
    assert ends.endswith(SAID + "</think>") and SAID not in duo.decode(r.tokens[budget + n :])


def test_what_is_no_thought_is_left_alone(duo: Duo) -> None:
    for prompt in ("Once upon a time", "A <think>thought</think> has ended"):
        free, limited = (duo.generate(prompt, **{**ASKED, "reasoning_budget": n}) for n in (-1, 3))
        assert limited.tokens == free.tokens


def test_a_processor_is_asked_beside_it(duo: Duo) -> None:
    seen: list[int] = []

    def count(ids: Any, scores: Any) -> Any:
        seen.append(len(ids))
        return scores

    r = duo.generate(PROMPT, **ASKED, logits_processor=count)
    assert r.tokens == duo.generate(PROMPT, **ASKED).tokens
    assert seen == [r.prompt_tokens + i for i in range(len(r.tokens))]


def test_texts_side_by_side_have_limits_of_their_own(duo: Duo) -> None:
    alone = [duo.generate(PROMPT, **{**ASKED, "reasoning_budget": n}).tokens for n in (3, 9)]
    streams = [duo.stream(PROMPT, **{**ASKED, "reasoning_budget": n}) for n in (3, 9)]
    for s in streams:
        for _ in s:
            pass
    assert [s.result.tokens for s in streams] == alone


def test_bad_limits_are_refused(duo: Duo) -> None:
    for bad in ({"reasoning_budget": -2}, {"reasoning_budget": "x"}, {"reasoning_budget_message": "\0"}):
        with pytest.raises(BadValueError, match="reasoning_budget"):
            duo.generate(PROMPT, **bad)


def test_on_the_command_line(run: Run) -> None:
    args = ("-p", PROMPT, "-n", "40", "--seed", "5", "--ignore-eos", "--no-display-prompt")
    code, out, _ = run(*args, "--reasoning-budget", "6", "--reasoning-budget-message", r"\n(enough)")
    assert code == 0 and "(enough)</think>" in out
    assert "</think>" not in run(*args)[1]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served(chat_template=TEMPLATE) as s:
        yield s


def test_a_chat_has_a_budget(server: Server) -> None:
    messages = [{"role": "user", "content": "Tell me a tale."}]
    body = {"messages": messages, "max_tokens": 60, "seed": 3, "ignore_eos": True,
            "chat_template_kwargs": {"enable_thinking": True}, "reasoning_format": "deepseek"}  # fmt: skip
    free = server.post("/v1/chat/completions", body).json()["choices"][0]["message"]
    assert free["reasoning_content"] and not free["content"]  # it thinks to the end
    for name in ("reasoning_budget_tokens", "thinking_budget_tokens"):
        said = {"reasoning_budget_message": " So!\n"}
        limited = server.post("/v1/chat/completions", {**body, **said, name: 8}).json()["choices"][0]["message"]
        assert limited["reasoning_content"].endswith("So!") and limited["content"]
        assert len(limited["reasoning_content"]) < len(free["reasoning_content"])
    answer = server.post("/v1/messages", {
        "messages": messages, "max_tokens": 60, "seed": 3, "ignore_eos": True,
        "chat_template_kwargs": {"enable_thinking": True}, "thinking": {"type": "enabled", "budget_tokens": 8},
    }).json()  # fmt: skip
    assert [b["type"] for b in answer["content"]] == ["thinking", "text"]


@pytest.mark.parametrize("mode", mostly_daily(["plain", "sync", "async"], ["async"]))
def test_a_grammar_comes_first(duo: Duo, mode: str) -> None:
    """Where it does not allow the end of the thought, the text goes on as it wants; where it does, the limit holds."""
    o = {**ASKED, "reasoning_budget_message": "", "ignore_eos": False, "mode": mode}
    number = duo.generate(PROMPT, **o, grammar="root ::= [0-9]{12}").text
    assert len(number) == 12 and number.isdigit()
    late = duo.generate(PROMPT, **o, grammar='root ::= [a-z ]{40} "</think>" [a-z ]+').text
    assert late.index("</think>") == 40
    said = duo.generate(PROMPT, **{**o, "reasoning_budget_message": "Now.", "max_tokens": 60}, grammar="root ::= [^<]*")
    assert said.text.count("Now.") == 1, said.text
    early = duo.generate(PROMPT, **o, grammar='root ::= [^<]* "</think>" [a-z ,.]+')
    assert len(duo.tokenize(early.text.partition("</think>")[0], add_bos=False)) <= 7
