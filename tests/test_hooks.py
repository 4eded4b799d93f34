"""logits_processor and stopping_criteria: a program's own functions, called for each token in every mode."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import llama_and_duo
from llama_cpp import LogitsProcessorList, MinTokensLogitsProcessor, StoppingCriteriaList
from sizes import mostly_daily

from duo import Duo
from duo.models.demo import demo_pair

TARGET, DRAFT = demo_pair()
LOAD: dict[str, Any] = {"n_ctx": 512, "verbose": False, "seed": 7}
PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
MESSAGES = [{"role": "user", "content": "Tell me the tale of the frog."}]


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Any, Duo]]:
    with llama_and_duo(**LOAD) as found:
        yield found


def ban(*tokens: int) -> Callable[[Any, Any], Any]:
    def processor(ids: Any, scores: Any) -> Any:
        scores = np.copy(scores)
        scores[list(tokens)] = -np.inf
        return scores

    return processor


def no_repeats(ids: Any, scores: Any) -> Any:
    scores[ids] = -np.inf
    return scores


def by_length(ids: Any, scores: Any) -> Any:
    """Depends on the prefix and on every score."""
    return np.roll(scores, len(ids) % 3) * np.single(0.5) + scores


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "ban": lambda llm: llm(PROMPT, logits_processor=LogitsProcessorList([ban(*range(300, 700))]), **GREEDY),
    "in place": lambda llm: llm(PROMPT, logits_processor=LogitsProcessorList([no_repeats]), **GREEDY),
    "two": lambda llm: llm(PROMPT, logits_processor=LogitsProcessorList([by_length, no_repeats]), **GREEDY),
    "plain list": lambda llm: llm(PROMPT, logits_processor=[by_length], **GREEDY),
    "min tokens": lambda llm: llm(
        PROMPT, temperature=0, max_tokens=80,
        logits_processor=LogitsProcessorList([MinTokensLogitsProcessor(40, llm.token_eos())]),
    ),
    "penalties follow": lambda llm: llm(PROMPT, logits_processor=[no_repeats], repeat_penalty=1.3, **GREEDY),
    "stop at": lambda llm: llm(PROMPT, stopping_criteria=StoppingCriteriaList([lambda ids, s: len(ids) > 12]),
                               **GREEDY),
    "stop at once": lambda llm: llm(PROMPT, stopping_criteria=lambda ids, s: True, **GREEDY),
    "stop on a word": lambda llm: llm(
        PROMPT, temperature=0, max_tokens=80,
        stopping_criteria=lambda ids, s: b"." in llm.detokenize([int(t) for t in ids[4:]]),
    ),
    "both": lambda llm: llm(PROMPT, logits_processor=LogitsProcessorList([by_length]),
                            stopping_criteria=StoppingCriteriaList([lambda i, s: False, lambda i, s: len(i) == 15]),
                            **GREEDY),
    "streamed": lambda llm: "".join(
        p["choices"][0]["text"] for p in llm(PROMPT, stream=True, logits_processor=[no_repeats], **GREEDY)
    ),
    "in a chat": lambda llm: llm.create_chat_completion(
        MESSAGES, logits_processor=LogitsProcessorList([no_repeats]), **GREEDY
    ),
}  # fmt: skip


def without_names(x: Any) -> Any:
    return {k: v for k, v in x.items() if k not in ("id", "created")} if isinstance(x, dict) else x


@pytest.mark.parametrize("name", mostly_daily(PROGRAMS, list(PROGRAMS)[::2]))
def test_the_same_program_on_both(both: tuple[Any, Duo], name: str) -> None:
    theirs, ours = (without_names(PROGRAMS[name](llm)) for llm in both)
    assert ours == theirs


def test_a_handler_of_llama_cpp_hands_them_on(both: tuple[Any, Duo]) -> None:
    answers = []
    for llm in both:
        before, llm.chat_format = llm.chat_format, "llama-2"
        processor = LogitsProcessorList([no_repeats])
        answers.append(without_names(llm.create_chat_completion(MESSAGES, logits_processor=processor, **GREEDY)))
        llm.chat_format = before
    assert answers[0] == answers[1]


def test_a_criterion_cannot_change_the_choice(duo_pair: Duo) -> None:
    def scribble(ids: Any, logits: Any) -> bool:
        logits[:] = np.nan
        return False

    plain = duo_pair.generate(PROMPT, **GREEDY)
    assert duo_pair.generate(PROMPT, stopping_criteria=scribble, **GREEDY).tokens == plain.tokens


GUESSED: list[dict[str, Any]] = [
    {"mode": "plain"}, {"mode": "sync", "n_draft": 4}, {"mode": "async"}, {"mode": "async", "n_draft": 8},
    {"draft_tree": "dynamic", "n_draft": 12}, {"spec_type": ["ngram-simple"]},
]  # fmt: skip


@pytest.mark.parametrize("options", mostly_daily(GUESSED, [GUESSED[1], GUESSED[3], GUESSED[4]]), ids=str)
def test_every_token_is_asked_about_once_and_in_order(duo_pair: Duo, options: dict[str, Any]) -> None:
    """Speculation does not show: the functions get the same calls, and the text is the same."""
    asked: list[tuple[list[int], float]] = []

    def processor(ids: Any, scores: Any) -> Any:
        assert (ids.dtype, scores.dtype, scores.shape) == (np.intc, np.single, (duo_pair.n_vocab(),))
        asked.append((ids.tolist(), float(scores[ids[-1]])))
        return by_length(ids, scores)

    prompt = duo_pair.tokenize(PROMPT)
    texts = []
    for how in ({"mode": "plain"}, options):
        asked.clear()
        r = duo_pair.generate(prompt, temperature=0.7, seed=3, max_tokens=30, logits_processor=processor, **how)
        ids = [*prompt, *r.tokens]
        assert [i for i, _ in asked] == [ids[:n] for n in range(len(prompt), len(ids))]
        texts.append((r.tokens, [s for _, s in asked] if duo_pair.target.same_bits else None))
    assert texts[0] == texts[1]


def test_what_other_options_mean_stays(duo_pair: Duo) -> None:
    seen: list[Any] = []

    def look(ids: Any, scores: Any) -> bool:
        seen.append(scores)
        return False

    r = duo_pair.generate(PROMPT, logits_processor=ban(*range(500)), stopping_criteria=look, logprobs=2, **GREEDY)
    own = [Duo.logits_to_logprobs(s) for s in seen]  # the criterion gets what the model says, as logprobs do
    assert [t.logprob for t in r.logprobs] == pytest.approx(
        [p[t] for p, t in zip(own, r.tokens, strict=True)], abs=1e-4
    )
    assert all(t >= 500 for t in r.tokens)
    bias = duo_pair.generate(PROMPT, logit_bias={600: 1e6, 700: 1e6}, logits_processor=ban(600), **GREEDY)
    assert set(bias.tokens) == {700}
    held = duo_pair.generate(
        "Is it late? ", grammar='root ::= "yes" | "no"', logits_processor=lambda i, s: -s, **GREEDY
    )
    assert held.text in ("yes", "no")


def test_scores_may_be_a_list_as_in_llama_cpp(both: tuple[Any, Duo]) -> None:
    def program(llm: Any) -> Any:
        hook = LogitsProcessorList([lambda i, s: [0.0] * 77 + [1.0] + [0.0] * (len(s) - 78)])
        return llm.create_completion(PROMPT, logits_processor=hook, max_tokens=3, temperature=0)["choices"][0]["text"]

    theirs, ours = map(program, both)
    assert ours == theirs == both[1].decode([77] * 3)


def test_defaults_of_a_duo() -> None:
    with Duo(n_ctx=128, stopping_criteria=lambda ids, s: len(ids) > 9) as d:
        n = len(d.tokenize(PROMPT))
        assert len(d.generate(PROMPT, **GREEDY).tokens) == 10 - n
        assert len(d.generate(PROMPT, stopping_criteria=None, max_tokens=12, ignore_eos=True).tokens) == 12
