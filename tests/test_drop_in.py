"""Programs written for llama_cpp.Llama, run with both: tokens, chat formats, tools, the constructor's arguments."""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import llama_cpp
import numpy as np
import pytest
from conftest import llama_and_duo
from llama_cpp import llama_chat_format
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from duo import Duo, DuoError
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

TARGET, DRAFT = demo_pair()
LOAD: dict[str, Any] = {"n_ctx": 1024, "verbose": False, "seed": 7}
SAME = {"cpu_kernels": "stock", "flash_attn": "off"}  # llama_cpp's sums, which others round otherwise
PROMPT = "Once upon a time"
MESSAGES = [
    {"role": "system", "content": "You tell tales."},
    {"role": "user", "content": "Tell me the tale of the frog."},
    {"role": "assistant", "content": "No."},
    {"role": "user", "content": "Please."},
]
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": CITY}}]
BY_NAME = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Any, Duo]]:
    with llama_and_duo(**LOAD) as found:
        yield found


def without_names(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: without_names(v) for k, v in x.items() if k not in ("id", "created")}
    return [without_names(v) for v in x] if isinstance(x, list) else x


@pytest.mark.parametrize("text", ["Once <|im_start|>upon", "", " a", "\u00e9\U0001f438 x", "<|im_end|>"])
def test_tokens_and_bytes(both: tuple[Any, Duo], text: str) -> None:
    def program(llm: Any) -> Any:
        data = text.encode()
        ids = [
            llm.tokenize(data),
            llm.tokenize(data, True, True),
            llm.tokenize(data, add_bos=False),
            llm.tokenize(data, add_bos=False, special=True),
        ]
        bos = llm.token_bos()
        texts = [llm.detokenize(i) for i in [*ids, [bos, *ids[2]], []]]
        spelled = [llm.detokenize(i, special=True) for i in ids] + [llm.detokenize(ids[0], ids[0][:1], True)]
        return ids, texts, spelled

    theirs, ours = map(program, both)
    assert ours == theirs
    d = both[1]
    assert d.tokenize(text, special=True) == d.tokenize(text.encode(), special=True)  # duo takes text, too
    assert d.tokenize(text, add_bos=False) == d.tokenize(text.encode(), add_bos=False)
    assert d.decode(d.tokenize(text, add_bos=False, special=True), special=True) == text


def test_a_draft_is_the_draft_model(both: tuple[Any, Duo], duo_pair: Duo, target_alone: Duo) -> None:
    assert both[0].draft_model is target_alone.draft_model is None
    assert duo_pair.draft_model is not None and duo_pair.draft_model.path == duo_pair.draft.path


def test_members_are_llama_cpps(both: tuple[Any, Duo]) -> None:
    def program(llm: Any) -> Any:
        logits = np.array([[1.0, 2.0, -np.inf], [0.0, 0.0, 0.0]], dtype=np.single)
        llm.set_cache(None)
        t = llama_cpp.LlamaTokenizer(llm)
        own = llm.tokenizer()
        return [
            llm.n_embd(), llm.token_nl(), llm.longest_token_prefix([1, 2, 3], [1, 2, 4, 5]),
            llm.longest_token_prefix([1], [1, 2]), np.round(llm.logits_to_logprobs(logits), 5).tolist(),
            t.encode("a <|im_end|>"), t.decode([5, 600, 700]), own.encode("a", add_bos=False), own.decode([5, 600]),
        ]  # fmt: skip

    theirs, ours = map(program, both)
    assert ours == theirs


def test_every_public_member_is_there_or_refused_by_name(both: tuple[Any, Duo]) -> None:
    llama, d = both
    documented = (Path(__file__).parents[1] / "docs" / "llama_cpp.md").read_text("utf-8")
    for name in (n for n in {*dir(llama), *vars(llama)} if not n.startswith("_")):
        assert f"`{name}" in documented, name
        if hasattr(d, name):
            continue
        with pytest.raises(DuoError, match=f"llama_cpp's {name} is not in duo: ") as e:
            getattr(d, name)
        assert isinstance(e.value, AttributeError)
        assert hasattr(llama, name)
    assert hasattr(llama, "scores") and not hasattr(d, "scores")  # without logits_all
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        _ = d.no_such


def test_a_seed_that_is_set_and_a_copy() -> None:
    with Duo(TARGET, DRAFT, n_ctx=256, temperature=0.9, chat_format="llama-2") as d:
        d.set_seed(5)
        one = d.generate(PROMPT, max_tokens=12)
        assert one.tokens == d.generate(PROMPT, max_tokens=12, seed=5).tokens
        with pytest.raises(DuoError, match="seed"):
            d.set_seed(-2)
        with pickle.loads(pickle.dumps(d)) as copy:
            assert copy.options == d.options
            assert copy.generate(PROMPT, max_tokens=12, seed=5).tokens == one.tokens
            d.set_seed(2**32 - 1)
            assert d.defaults["seed"] == -1


def test_a_chat_format_hears_of_mirostat(both: tuple[Any, Duo], monkeypatch: pytest.MonkeyPatch) -> None:
    d: Any = both[1]
    monkeypatch.setattr(d, "chat_format", "chatml")
    for bad in ({"mirostat_mode": 3}, {"mirostat_mode": 2, "mirostat_tau": -1.0}, {"mirostat_eta": "x"}):
        with pytest.raises(DuoError, match="mirostat"):
            d.create_chat_completion(MESSAGES, **bad)
    with pytest.raises(TypeError, match=r"create_chat_completion\(\) got an unexpected keyword argument 'no_such'"):
        d.create_chat_completion(MESSAGES, no_such=1)
    sampled = [
        d.create_chat_completion(MESSAGES, temperature=2.0, seed=5, max_tokens=12, **o)["choices"][0]["message"]
        for o in ({}, {"mirostat_mode": 2, "mirostat_tau": 0.1})
    ]
    assert sampled[0] != sampled[1]


def test_answers_as_objects_of_openai(both: tuple[Any, Duo], monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's classes take the dict's keys as keywords; these stand for them."""
    d: Any = both[1]
    monkeypatch.setitem(sys.modules, "openai.types.chat", None)
    with pytest.raises(ImportError, match="pip install openai"):
        d.create_chat_completion_openai_v1(MESSAGES)
    names = {name: type(name, (SimpleNamespace,), {}) for name in ("ChatCompletion", "ChatCompletionChunk")}
    for package in ("openai", "openai.types"):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    chat = ModuleType("openai.types.chat")
    chat.__dict__.update(names)
    monkeypatch.setitem(sys.modules, "openai.types.chat", chat)
    whole = d.create_chat_completion_openai_v1(MESSAGES, max_tokens=3)
    assert isinstance(whole, names["ChatCompletion"]) and whole.object == "chat.completion"
    parts = list(d.create_chat_completion_openai_v1(MESSAGES, max_tokens=3, stream=True))
    assert {type(p) for p in parts} == {names["ChatCompletionChunk"]}


FORMATS = [
    "llama-2", "llama-3", "alpaca", "qwen", "vicuna", "oasst_llama", "baichuan-2", "baichuan", "openbuddy",
    "redpajama-incite", "snoozy", "phind", "intel", "open-orca", "mistrallite", "zephyr", "pygmalion", "chatml",
    "mistral-instruct", "chatglm3", "openchat", "saiga", "gemma",
]  # fmt: skip


def answer_to(llm: Any, **options: Any) -> Any:
    try:
        return without_names(llm.create_chat_completion(MESSAGES, temperature=0, max_tokens=6, **options))
    except ValueError as e:
        return type(e).__name__


@pytest.mark.daily
@pytest.mark.full
def test_chat_formats_give_the_same_prompts(both: tuple[Any, Duo], monkeypatch: pytest.MonkeyPatch) -> None:
    llama, _ = both
    for name in FORMATS:
        monkeypatch.setattr(llama, "chat_format", name)
        with Duo(TARGET, chat_format=name, **SAME, **LOAD) as d:
            theirs, ours = answer_to(llama), answer_to(d)
        refused = theirs == "ValueError"  # gemma knows no system prompt
        assert (ours == "BadValueError") if refused else (ours["usage"] == theirs["usage"] and ours == theirs), name


@pytest.mark.parametrize("choice", ["auto", BY_NAME], ids=str)
def test_a_handler_with_tools(both: tuple[Any, Duo], choice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """chatml-function-calling asks for several texts, with grammars and stops of its own."""
    llama, _ = both
    options = {"tools": TOOLS, "tool_choice": choice, "temperature": 0, "max_tokens": 40}
    monkeypatch.setattr(llama, "chat_format", "chatml-function-calling")
    with Duo(TARGET, chat_format="chatml-function-calling", **SAME, **LOAD) as d:
        theirs, ours = (without_names(x.create_chat_completion(MESSAGES[:2], **options)) for x in (llama, d))
        assert ours == theirs
        assert "prompt_tokens" in d.create_chat_completion(MESSAGES[:2], mode="plain", max_tokens=2)["usage"]
        with pytest.raises(TypeError, match="top_q"):
            d.create_chat_completion(MESSAGES, top_q=1)
        with pytest.raises(DuoError, match="reasoning_format needs a chat template"):
            d.create_chat_completion(MESSAGES, reasoning_format="auto")


def test_a_handler_of_the_programs_own(both: tuple[Any, Duo], monkeypatch: pytest.MonkeyPatch) -> None:
    def upper(messages: Any, **more: Any) -> Any:
        return llama_chat_format.ChatFormatterResponse(prompt=messages[-1]["content"].upper() + "\n", stop="king")

    handler = llama_chat_format.chat_formatter_to_chat_completion_handler(upper)
    llama, _ = both
    monkeypatch.setattr(llama, "chat_handler", handler)
    with Duo(TARGET, chat_handler=handler, **SAME, **LOAD) as d:
        for options in ({}, {"max_tokens": 12}, {"max_tokens": 30, "response_format": {"type": "json_object"}}):
            theirs, ours = (x.create_chat_completion(MESSAGES, temperature=0, **options) for x in (llama, d))
            assert ours["usage"]["prompt_tokens"] == theirs["usage"]["prompt_tokens"]
            if "response_format" not in options:  # theirs allows any JSON value
                assert without_names(ours) == without_names(theirs)
        theirs, ours = (list(x.create_chat_completion(MESSAGES, temperature=0, max_tokens=9, stream=True))
                        for x in (llama, d))  # fmt: skip
        words = ["".join(p["choices"][0]["delta"].get("content") or "" for p in parts) for parts in (theirs, ours)]
        assert words[0] == words[1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("options", [
    {"tools": TOOLS, "tool_choice": BY_NAME},
    {"functions": [TOOLS[0]["function"]], "function_call": {"name": "weather"}},
], ids=["tools", "functions"])  # fmt: skip
def test_a_tool_by_name(both: tuple[Any, Duo], options: Any, stream: bool) -> None:
    def program(llm: Any) -> Any:
        found = llm.create_chat_completion(MESSAGES, temperature=0, max_tokens=40, stream=stream, **options)
        return without_names(list(found) if stream else found)

    theirs, ours = map(program, both)
    if not stream:
        assert ours == theirs
        return
    arguments = [
        "".join(c["function"]["arguments"] for p in parts for c in p["choices"][0]["delta"]["tool_calls"] or ())
        for parts in (theirs, ours)
    ]
    assert arguments[0] == arguments[1]
    assert (ours[0], ours[-1]) == (theirs[0], theirs[-1])
    assert {tuple(p["choices"][0]["delta"]) for p in ours} == {tuple(p["choices"][0]["delta"]) for p in theirs}


def test_variables_of_the_template() -> None:
    template = "{{ 'think' if enable_thinking else 'rest' }} {{ level | default('-') }}: {{ messages[-1].content }}"
    with Duo(TARGET, n_ctx=64, chat_template=template) as d:
        ask: Any = d.create_chat_completion
        sizes = {
            ask(MESSAGES, max_tokens=1, **options)["usage"]["prompt_tokens"]
            for options in ({"enable_thinking": True}, {"chat_template_kwargs": {"enable_thinking": True}})
        }
        assert sizes == {len(d.tokenize("think -: Please.", add_bos=False))}
        with pytest.raises(TypeError, match="enable_thought"):
            ask(MESSAGES, enable_thought=True)


def test_a_template_without_a_place_for_tools_says_so() -> None:
    with Duo(TARGET, n_ctx=256, chat_template="llama3") as d:
        with pytest.raises(DuoError, match="llama3 has no place for tools"):
            d.create_chat_completion(MESSAGES, tools=TOOLS)
        a = d.create_chat_completion(MESSAGES, tools=TOOLS, tool_choice=BY_NAME, max_tokens=40)
        assert a["choices"][0]["finish_reason"] == "tool_calls"
        assert "tool_calls" not in d.create_chat_completion(MESSAGES, tools=TOOLS, tool_choice="none", max_tokens=1)


def test_prompt_lookup_means_n_grams() -> None:
    guesser = LlamaPromptLookupDecoding(max_ngram_size=3, num_pred_tokens=7)
    with SwitchedDuo(model_path=TARGET, draft_model=guesser, n_ctx=512, seed=1, always=True) as d:
        text = PROMPT + " there was a king. " + PROMPT
        t = d.generate(text, max_tokens=60, temperature=0).timings
        assert d.defaults["spec_type"] == ["ngram-simple"]
        assert (d.defaults["ngram_size_n"], d.defaults["ngram_size_m"]) == (3, 7)
        assert t["draft_ngram_n"] > 0
