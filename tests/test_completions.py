"""Code written for llama_cpp.Llama, run with both."""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from conftest import need_llama_cpp
from gguf_files import BOOL, U32, rewrite
from llama_code import DRAFT, LOAD, MESSAGES, PROMPT, TARGET
from served import served
from sizes import LARGE

from duo import Duo, DuoError
from duo.compat.llama_cpp.infill import infill
from duo.compat.llama_cpp.members import CHAT_ARGUMENTS, COMPLETION_ARGUMENTS

INTEGER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Any, Duo]]:
    need_llama_cpp()
    llama = llama_cpp.Llama(**LOAD)
    # llama_cpp's kernels and its attention: others round otherwise, and a near tie may fall to another token.
    with Duo(draft=DRAFT, cpu_kernels="stock", flash_attn="off", **LOAD) as d:
        yield llama, d
    llama.close()


def shape(x: Any) -> Any:
    """The keys, in order, and the kinds of their values; numbers are numbers."""
    if isinstance(x, dict):
        return [(k, shape(v)) for k, v in x.items()]
    if isinstance(x, list):
        return [shape(v) for v in x]
    return float if isinstance(x, float | int) or hasattr(x, "dtype") else type(x)


def without_names(x: Any) -> Any:
    return {k: v for k, v in x.items() if k not in ("id", "created")}


@pytest.mark.parametrize("options", [
    {},
    {"max_tokens": 30},
    {"max_tokens": 0, "stop": "girl"},
    {"max_tokens": 20, "echo": True, "model": "tale"},
    {"max_tokens": 40, "stop": ["the", "girl"]},
    {"max_tokens": 10, "logit_bias": {"11": -100.0, "16": 5}, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "seed": 3},
    {"max_tokens": 30, "grammar": llama_cpp.LlamaGrammar.from_string('root ::= [a-z ]{5,20} "."', verbose=False)},
    {"max_tokens": None, "stop": ["the"], "grammar": None, "seed": None, "logit_bias": None},
], ids=lambda o: re.sub(" object at 0x\\w+", "", str(o)))  # fmt: skip
def test_completions_are_equal(both: tuple[Any, Duo], options: dict[str, Any]) -> None:
    theirs, ours = (llm.create_completion(PROMPT, temperature=0, **options) for llm in both)
    assert list(ours) == list(theirs)
    assert without_names(ours) == without_names(theirs)
    assert ours["id"].startswith("cmpl-")
    theirs, ours = (llm(PROMPT, temperature=0, **options) for llm in both)
    assert without_names(ours) == without_names(theirs)


def test_arguments_by_place_are_llama_cpps(both: tuple[Any, Duo]) -> None:
    for order, method in (
        (COMPLETION_ARGUMENTS, llama_cpp.Llama.create_completion),
        (CHAT_ARGUMENTS, llama_cpp.Llama.create_chat_completion),
    ):
        assert list(order) == list(inspect.signature(method).parameters)[2:]
    theirs, ours = (llm.create_completion(PROMPT, None, 6, 0.0) for llm in both)
    assert without_names(ours) == without_names(theirs)
    theirs, ours = (llm(PROMPT, None, 6, 0.0, echo=True) for llm in both)
    assert without_names(ours) == without_names(theirs)
    with pytest.raises(TypeError, match="two values for 'max_tokens'"):
        both[1](PROMPT, None, 6, max_tokens=6)
    with pytest.raises(TypeError, match="25 arguments at most"):
        both[1](PROMPT, *([None] * 25))


def test_model_properties_have_llama_cpps_names(both: tuple[Any, Duo]) -> None:
    llama, d = both
    assert (d.n_ctx(), d.n_vocab()) == (llama.n_ctx(), llama.n_vocab())
    assert (d.token_bos(), d.token_eos(), d.model_path) == (llama.token_bos(), llama.token_eos(), llama.model_path)
    names = {"general.architecture", "llama.block_count", "tokenizer.ggml.model"}
    assert names <= d.metadata.keys()
    assert {name: d.metadata[name] for name in names} == {name: llama.metadata[name] for name in names}
    d.reset()
    assert d.tokenize(PROMPT.encode()) == llama.tokenize(PROMPT.encode()) == d.tokenize(PROMPT)


def test_a_prompt_of_ids(both: tuple[Any, Duo]) -> None:
    ids = both[1].tokenize(PROMPT)
    theirs, ours = (llm(ids, temperature=0.0, max_tokens=8) for llm in both)
    assert without_names(ours) == without_names(theirs)


def test_penalties_on_what_was_generated(both: tuple[Any, Duo]) -> None:
    """llama_cpp does not penalise the prompt's tokens, duo does, as llama.cpp's programs do."""
    options = {"max_tokens": 20, "repeat_penalty": 1.5, "frequency_penalty": 0.5, "presence_penalty": 0.5}
    theirs, ours = (llm([llm.tokenize("")[0] if isinstance(llm, Duo) else 0], temperature=0, **options) for llm in both)
    assert ours["choices"] == theirs["choices"]


def texts(parts: list[Any], of: Callable[[Any], str | None]) -> str:
    return "".join(of(p["choices"][0]) or "" for p in parts)


@pytest.mark.parametrize("options", [{"max_tokens": 12}, {"max_tokens": 40, "stop": ["girl"]}])
def test_streams_of_completions_are_equal(both: tuple[Any, Duo], options: dict[str, Any]) -> None:
    theirs, ours = (list(llm(PROMPT, temperature=0, stream=True, **options)) for llm in both)
    assert texts(ours, lambda c: c["text"]) == texts(theirs, lambda c: c["text"])
    assert {str(shape(p)) for p in ours} == {str(shape(p)) for p in theirs}
    assert without_names(ours[-1]) == without_names(theirs[-1])
    assert len({p["id"] for p in ours}) == 1


@pytest.mark.parametrize("options", [
    {"max_tokens": 20},
    {"max_tokens": 60, "stop": ["module"]},
    {"max_tokens": 60, "response_format": {"type": "json_object", "schema": INTEGER}},
    {"max_tokens": 20, "response_format": {"type": "text"}, "tools": None, "tool_choice": None},
], ids=lambda o: re.sub(" object at 0x\\w+", "", str(o)))  # fmt: skip
def test_chat_completions_are_equal(both: tuple[Any, Duo], options: dict[str, Any]) -> None:
    theirs, ours = (llm.create_chat_completion(messages=MESSAGES, temperature=0, **options) for llm in both)
    assert without_names(ours) == without_names(theirs)
    assert list(ours) == list(theirs)
    theirs, ours = (list(llm.create_chat_completion(MESSAGES, temperature=0, stream=True, **options)) for llm in both)
    assert texts(ours, lambda c: c["delta"].get("content")) == texts(theirs, lambda c: c["delta"].get("content"))
    assert [list(p) for p in ours[:2]] == [list(p) for p in theirs[:2]]
    assert [p["choices"] for p in (ours[0], ours[-1])] == [p["choices"] for p in (theirs[0], theirs[-1])]


def test_log_probabilities_have_the_same_shape_and_nearly_the_same_values(both: tuple[Any, Duo]) -> None:
    theirs, ours = (llm(PROMPT, temperature=0, max_tokens=5, logprobs=3)["choices"][0]["logprobs"] for llm in both)
    for name in ("tokens", "text_offset"):
        assert ours[name] == theirs[name]
    assert ours["token_logprobs"] == pytest.approx([float(p) for p in theirs["token_logprobs"]], abs=0.1)
    assert [len(t) for t in ours["top_logprobs"]] == [len(t) for t in theirs["top_logprobs"]]
    asked = {"temperature": 0, "max_tokens": 5, "logprobs": True, "top_logprobs": 2}
    theirs, ours = (llm.create_chat_completion(MESSAGES, **asked)["choices"][0]["logprobs"] for llm in both)
    assert [shape(t) for t in ours["content"]] == [shape(t) for t in theirs["content"]]
    assert [t["token"] for t in ours["content"]] == [t["token"] for t in theirs["content"]]
    parts = [list(llm(PROMPT, temperature=0, max_tokens=4, logprobs=1, stream=True)) for llm in both]
    theirs, ours = ([p["choices"][0]["logprobs"] for p in of] for of in parts)
    assert [x and x["tokens"] for x in ours] == [x and x["tokens"] for x in theirs]
    assert [x and x["text_offset"] for x in ours] == [x and x["text_offset"] for x in theirs]


def test_offsets_count_characters_of_several_tokens(both: tuple[Any, Duo]) -> None:
    grammar = llama_cpp.LlamaGrammar.from_string('root ::= "h\u00e9 \U0001f438 \ud55c x"', verbose=False)
    asked = {"grammar": grammar, "max_tokens": 30, "temperature": 0, "logprobs": 1}
    for prompt in ("Onc\u00e9 ",) if not LARGE else ("Once", "Onc\u00e9 "):
        for echo in (False, True):
            theirs, ours = (llm(prompt, echo=echo, **asked)["choices"][0]["logprobs"] for llm in both)
            assert ours["text_offset"] == theirs["text_offset"]
            assert len(set(ours["text_offset"])) < len(ours["tokens"])  # characters of several tokens
        theirs, ours = (list(llm(prompt, stream=True, **asked)) for llm in both)
        offsets = [[p["choices"][0]["logprobs"]["text_offset"] for p in parts[:-1]] for parts in (theirs, ours)]
        assert offsets[1] == offsets[0]


def test_openais_form_of_a_schema_and_any_object(both: tuple[Any, Duo]) -> None:
    _, d = both
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": INTEGER}}
    ask: Callable[..., Any] = d.create_chat_completion
    assert '"n"' in ask(MESSAGES, response_format=wanted, max_tokens=60)["choices"][0]["message"]["content"]
    any_object = ask(MESSAGES, response_format={"type": "json_object"}, max_tokens=10)
    assert any_object["choices"][0]["message"]["content"].startswith("{")
    for bad in ({"type": "xml"}, {"type": "json_schema"}, "json"):
        with pytest.raises(DuoError, match="response_format"):
            ask(MESSAGES, response_format=bad)


@pytest.mark.full
def test_echo_with_logprobs_scores_the_prompt(both: tuple[Any, Duo]) -> None:
    for prompt in (PROMPT, " ".join([PROMPT] * 12), both[0].tokenize(b"The rain fell.")):
        for n in (0, 3):
            theirs, ours = (
                llm.create_completion(prompt, max_tokens=4, temperature=0, echo=isinstance(prompt, str), logprobs=n)
                if isinstance(prompt, str) or llm is both[1]
                else None
                for llm in both
            )
            if theirs is not None:  # there, the echo of token ids is a TypeError
                assert ours["choices"][0]["text"] == theirs["choices"][0]["text"]
                same_logprobs(ours["choices"][0]["logprobs"], theirs["choices"][0]["logprobs"])
    ids = both[1].tokenize(PROMPT)
    by_ids, by_text = (both[1](p, max_tokens=3, temperature=0, echo=True, logprobs=2) for p in (ids, PROMPT))
    assert by_ids["choices"][0]["logprobs"] == by_text["choices"][0]["logprobs"]
    assert len(by_ids["choices"][0]["logprobs"]["tokens"]) == len(ids) - (ids[0] == both[1].token_bos()) + 3
    one = both[1](ids[:1], max_tokens=1, temperature=0, echo=True, logprobs=1)["choices"][0]["logprobs"]
    assert one["token_logprobs"][0] is None or ids[0] == both[1].token_bos()
    with pytest.raises(DuoError, match="the context holds 512"):
        both[1]([5] * 600, echo=True, logprobs=1)


def same_logprobs(ours: Any, theirs: Any) -> None:
    assert ours["tokens"] == theirs["tokens"]
    assert ours["text_offset"] == theirs["text_offset"]
    assert (ours["token_logprobs"][0], ours["top_logprobs"][0]) == (None, None)
    assert ours["token_logprobs"][1:] == pytest.approx(list(map(float, theirs["token_logprobs"][1:])), abs=2e-3)
    assert theirs["token_logprobs"][0] is None
    for a, b in zip(ours["top_logprobs"][1:], theirs["top_logprobs"][1:], strict=True):
        assert a == pytest.approx({k: float(v) for k, v in b.items()}, abs=2e-3)


FIM = (301, 302, 303)


@pytest.fixture(scope="module")
def fim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target with tokens that mark prefix, suffix and middle."""
    kinds = zip(("pre", "suf", "mid"), FIM, strict=True)
    put: dict[str, Any] = {f"tokenizer.ggml.fim_{kind}_token_id": (U32, token) for kind, token in kinds}
    put["tokenizer.ggml.add_space_prefix"] = (BOOL, False)  # llama_cpp cuts the space off wrongly for such a vocabulary
    return rewrite(TARGET, tmp_path_factory.mktemp("fim") / "fim.gguf", put=put)


@pytest.mark.parametrize("spm_infill", [False, True])
def test_a_suffix_is_filled_in_as_llama_cpp_does(fim: Path, spm_infill: bool) -> None:
    """llama_cpp's own marks are token 0 in this release; it puts them at the right places."""
    need_llama_cpp()
    llama = llama_cpp.Llama(**{**LOAD, "model_path": str(fim)}, spm_infill=spm_infill)
    seen: list[list[int]] = []
    llama.generate = lambda tokens, **_: seen.append(list(tokens)) or iter(())
    order = (FIM[1], FIM[0], FIM[2]) if spm_infill else FIM
    with Duo(fim, n_ctx=256, cpu_kernels="stock", spm_infill=spm_infill) as d:
        d.chat_format = "chatml"  # another matter
        assert d.spm_infill == llama.spm_infill == spm_infill
        assert d.local_model.fim_tokens == FIM
        for prompt, suffix in (
            ("Once upon", "a time"), ("", "the end"), ("Once", ""), ("a  b", "  c d"), (d.tokenize(b"The rain"), "x\n"),
        ):  # fmt: skip
            llama.create_completion(prompt, suffix=suffix, max_tokens=1)
            ours = infill(d.local_model, prompt, suffix, suffix_first=spm_infill)
            assert [0 if t in FIM else t for t in ours] == seen.pop()
            assert tuple(t for t in ours if t in FIM) == order
            answer = d.create_completion(prompt, suffix=suffix, max_tokens=5, temperature=0, echo=True)
            assert answer["usage"]["prompt_tokens"] == len(ours)
            text = d.generate(ours, max_tokens=5, temperature=0).text
            assert answer["choices"][0]["text"].endswith(text)
            if isinstance(prompt, str):
                assert answer["choices"][0]["text"] == prompt + text
    llama.close()


def test_a_server_puts_a_suffix_behind_ids_too(fim: Path) -> None:
    with served(model=fim, n_ctx=256, n_parallel=1) as s:
        ids = s.duo.tokenize(PROMPT, add_bos=False)
        body = {"suffix": "x", "max_tokens": 8, "temperature": 0, "echo": True}
        by_words, by_ids = (s.post("/v1/completions", {**body, "prompt": p}).json() for p in (PROMPT, ids))
        n_tokens = [x["usage"]["prompt_tokens"] for x in (by_ids, by_words)]
        assert by_ids["choices"] == by_words["choices"] and n_tokens[0] == n_tokens[1] > len(ids)


def test_a_model_without_marks_cannot_fill_in(both: tuple[Any, Duo]) -> None:
    with pytest.raises(DuoError, match="suffix needs a model that was trained to fill in the middle"):
        both[1].create_completion(PROMPT, suffix="x")


def test_a_stream_that_is_dropped_frees_its_place(both: tuple[Any, Duo]) -> None:
    _, d = both
    parts: Any = d(PROMPT, max_tokens=400, stream=True)
    next(parts)
    del parts
    never: Any = d(PROMPT, max_tokens=400, stream=True)
    del never
    assert d(PROMPT, max_tokens=2)["usage"]["completion_tokens"] == 2  # type: ignore[index]
