"""Programs that evaluate and sample token by token, run with llama_cpp.Llama and with Duo."""

import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from conftest import llama_and_duo
from llama_cpp import LogitsProcessorList, StoppingCriteriaList

from duo import ContextFullError, Duo, DuoError
from duo.models.demo import demo_pair

LOAD: dict[str, Any] = {"n_ctx": 128, "verbose": False, "seed": 7, "logits_all": True}
TEXT = b"Once upon a time there was"


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Any, Duo]]:
    with llama_and_duo(**LOAD) as found:
        yield found


@pytest.fixture(scope="module")
def plain() -> Iterator[Duo]:
    with Duo(*demo_pair(), n_ctx=128) as d:
        yield d


def one_by_one(llm: Any) -> Any:
    llm.reset()
    llm.eval(llm.tokenize(TEXT))
    found = []
    for _ in range(6):
        found.append(llm.sample(temp=0.0))
        llm.eval(found[-1:])
    return found, llm.n_tokens, list(llm.eval_tokens), llm.input_ids[: llm.n_tokens].tolist()


def generated(llm: Any) -> Any:
    ids = llm.tokenize(TEXT)
    found = list(islice(llm.generate(ids, temp=0.0), 6)), llm.n_tokens
    again = list(islice(llm.generate(ids, 1, 0.95, 0.05, 1.0, 0.8), 4)), llm.n_tokens  # by place: top_k 1
    llm.reset()
    llm.eval(ids[:3])
    return found, again, list(islice(llm.generate(ids[3:], reset=False, temp=0.0), 4)), llm.n_tokens


def gone_back(llm: Any) -> Any:
    ids = llm.tokenize(TEXT)
    llm.reset()
    llm.eval([*ids[:3], 5, 6])
    llm.n_tokens = 3
    llm.eval(ids[3:])
    return llm.sample(temp=0.0), list(llm.eval_tokens), llm.sample(temp=0.0, idx=3)


def behind_an_end(llm: Any) -> Any:
    ids, end = llm.tokenize(TEXT), llm.token_eos()

    def ends(seen: Any, scores: Any) -> Any:
        scores = scores.copy()
        scores[end] = 1000 if len(seen) == len(ids) + 1 else -1000
        return scores

    return list(islice(llm.generate(ids, temp=0.0, logits_processor=LogitsProcessorList([ends])), 5))


def stopped(llm: Any) -> Any:
    ids = llm.tokenize(TEXT)
    at = StoppingCriteriaList([lambda seen, _: len(seen) >= len(ids) + 3])
    return list(llm.generate(ids, temp=0.0, stopping_criteria=at)), llm.n_tokens


def kept(llm: Any) -> Any:
    llm.reset()
    ids = llm.tokenize(TEXT)
    llm.eval(ids)
    state = pickle.loads(pickle.dumps(llm.save_state()))
    llm.eval([5, 6])
    llm.load_state(state)
    said = state.n_tokens, state.input_ids[: state.n_tokens].tolist(), state.scores.shape
    return said, llm.n_tokens, list(islice(llm.generate(ids, temp=0.0), 4))


@pytest.mark.parametrize("program", [one_by_one, generated, gone_back, behind_an_end, stopped, kept])
def test_the_same_tokens(both: tuple[Any, Duo], program: Callable[[Any], Any]) -> None:
    theirs, ours = map(program, both)
    assert ours == theirs


def test_the_same_logits(both: tuple[Any, Duo]) -> None:
    def program(llm: Any) -> Any:
        llm.reset()
        llm.eval(llm.tokenize(TEXT))
        n = llm.n_tokens
        evaluated = llm.scores[:n].copy()
        list(islice(llm.generate(llm.tokenize(TEXT + b" a"), temp=0.0), 3))
        return evaluated, np.array(llm.eval_logits), llm.scores.shape

    theirs, ours = map(program, both)
    assert ours[2] == theirs[2] == (128, both[1].n_vocab())
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        assert one.shape == other.shape
        assert np.allclose(one, other, atol=0.1)  # passes of several tokens round otherwise on AMX


def test_completions_draw_their_seeds_from_one(both: tuple[Any, Duo]) -> None:
    """As in llama-cpp-python's tests/test_llama.py."""

    def program(llm: Any) -> list[str]:
        llm.set_seed(1337)
        state = llm.save_state()
        texts = [llm("Once", max_tokens=8, temperature=2.0)["choices"][0]["text"] for _ in range(2)]
        llm.load_state(state)
        return [*texts, llm("Once", max_tokens=8, temperature=2.0)["choices"][0]["text"]]

    for llm in both:
        llm.reset()  # the state is that of a text, and `eval` was not used
        one, two, three = program(llm)
        assert one == three != two


def test_a_text_of_both_models_without_all_logits(plain: Duo) -> None:
    ids = plain.tokenize(TEXT)
    plain.reset()
    assert (plain.n_tokens, len(plain.eval_logits)) == (0, 0)
    plain.eval(ids)
    (row,) = plain.eval_logits
    assert int(np.argmax(row)) == plain.sample(temp=0.0)
    assert not hasattr(plain, "scores")
    with pytest.raises(AttributeError, match="needs logits_all=True"):
        _ = plain.scores
    whole = plain.generate(ids, max_tokens=20, temperature=0.9, seed=3)
    with pytest.raises(TypeError, match="seeds"):
        plain.sample(seeds=3)
    plain.set_seed(3)
    assert list(islice(plain.generate_tokens(ids, temp=0.9), 20)) == list(whole.tokens)
    ids_now = list(plain.eval_tokens)
    drawn = plain.generate(ids_now, max_tokens=1, seed=3, mode="plain", temperature=1, top_k=0, top_p=1, min_p=0)
    assert plain.sample(temp=-1.0) == drawn.tokens[0]  # from the whole distribution
    assert plain.sample(temp=0.0, grammar='root ::= "x"') == plain.tokenize("x", add_bos=False)[-1]
    assert plain.target.is_end(list(plain.generate_tokens(ids, temp=0.0, grammar='root ::= "x"'))[-1])


def test_mistakes(plain: Duo) -> None:
    plain.reset()
    for program, what in (
        (lambda: plain.sample(), "sample needs a token"),
        (lambda: plain.eval([plain.n_vocab()]), "outside the vocabulary"),
        (lambda: next(plain.generate_tokens([])), "the prompt is empty"),
        (lambda: plain.sample(idx=0), "idx is 0"),
    ):
        with pytest.raises(DuoError, match=what):
            program()
    plain.eval([])
    assert plain.n_tokens == 0
    plain.eval([5] * 120)
    with pytest.raises(DuoError, match="top_p"):
        plain.sample(top_p=7)
    with pytest.raises(ContextFullError, match="120 tokens are evaluated"):
        plain.eval([5] * 8)
    untyped: Any = plain
    with pytest.raises(ContextFullError):
        for _ in untyped.generate([5] * 120, temp=0.0, reset=True):
            assert plain.n_tokens < plain.n_ctx()
    plain.n_tokens = 200
    with pytest.raises(DuoError, match="n_tokens is 200"):
        plain.sample()
    plain.reset()
