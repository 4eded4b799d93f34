"""Small programs as users of llama_cpp.Llama write them, run with both: the same dicts, or the same kind of error."""

import json
import pickle
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import llama_cpp
import numpy as np
import pytest
from conftest import llama_and_duo
from llama_cpp import LlamaCache, LlamaGrammar
from sizes import mostly_daily

from duo import BadValueError, Duo, DuoError
from duo.models.demo import demo_pair

TARGET, DRAFT = demo_pair()
LOAD: dict[str, Any] = {"n_ctx": 256, "verbose": False, "seed": 7, "logits_all": True}
PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
ASK = [{"role": "system", "content": "You tell tales."}, {"role": "user", "content": "Tell me the tale of the frog."}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": SCHEMA}}]
CALLED = [
    *ASK,
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
    {"role": "tool", "content": "ok", "tool_call_id": "1"},
]  # fmt: skip


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Any, Duo]]:
    with llama_and_duo(**LOAD) as found:
        yield found


def yes_or_no() -> LlamaGrammar:
    return LlamaGrammar.from_string('root ::= "yes" | "no"', verbose=False)


def texts(parts: Any) -> str:
    return "".join(p["choices"][0]["text"] for p in parts)


def chat(llm: Any, messages: Any = ASK, **options: Any) -> Any:
    return llm.create_chat_completion(messages, **{**GREEDY, **options})


def cached(llm: Any) -> Any:
    llm.set_cache(LlamaCache(1 << 20))
    found = llm(PROMPT, **GREEDY), llm(PROMPT, **GREEDY)
    llm.set_cache(None)
    return found


def twice(llm: Any) -> bool:
    one, two = (llm(PROMPT, seed=3, max_tokens=5)["choices"][0]["text"] for _ in range(2))
    return bool(one == two)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a call": lambda llm: llm(PROMPT, **GREEDY),
    "a stop string": lambda llm: llm(PROMPT, stop="e", **GREEDY),
    "stop strings": lambda llm: llm(PROMPT, stop=["there", "was"], **GREEDY),
    "no stop strings": lambda llm: [llm(PROMPT, stop=s, **GREEDY) for s in ([], None)],
    "a stop of several bytes": lambda llm: llm(PROMPT, stop=["\U0001f438"], **GREEDY),
    "echo": lambda llm: llm(PROMPT, echo=True, **GREEDY),
    "ids": lambda llm: llm(llm.tokenize(PROMPT.encode()), **GREEDY),
    "unicode": lambda llm: llm("\u00dcn\u00efcode \U0001f438", **GREEDY),
    "parts": lambda llm: list(llm(PROMPT, stream=True, **GREEDY)),
    "parts up to a stop": lambda llm: list(llm(PROMPT, stream=True, stop=["was"], **GREEDY)),
    "no limit": lambda llm: [llm(PROMPT, temperature=0, max_tokens=n)["usage"] for n in (None, -1, 0, 100_000)],
    "a bias": lambda llm: llm(PROMPT, logit_bias={600: 5.0, "700": 3}, **GREEDY),
    "a bias in a chat": lambda llm: chat(llm, logit_bias={600: 50.0}),
    "a grammar": lambda llm: llm(PROMPT, grammar=yes_or_no(), **GREEDY),
    "a grammar of a schema": lambda llm: llm(
        PROMPT, grammar=LlamaGrammar.from_json_schema(json.dumps(SCHEMA), verbose=False), temperature=0, max_tokens=40
    ),
    "a seed": twice,
    "top_k 1": lambda llm: llm(PROMPT, top_k=1, max_tokens=8, temperature=1.0),
    "top_p 0": lambda llm: llm(PROMPT, top_p=0.0, max_tokens=8),
    "neutral values": lambda llm: llm(
        PROMPT, repeat_penalty=1.0, frequency_penalty=0.0, presence_penalty=0.0, typical_p=1.0, tfs_z=0.9, suffix=None,
        mirostat_mode=0, **GREEDY,
    ),
    "a name": lambda llm: llm(PROMPT, model="gpt", **GREEDY)["model"],
    "by place": lambda llm: llm(PROMPT, None, 5, 0.0),
    "a chat": lambda llm: chat(llm),
    "a chat by place": lambda llm: llm.create_chat_completion(ASK, None, None, None, None, 0.0, max_tokens=5),
    "parts of a chat": lambda llm: list(chat(llm, stream=True)),
    "a chat in JSON": lambda llm: chat(llm, response_format={"type": "json_object"}, max_tokens=60),
    "a chat by a schema": lambda llm: chat(
        llm, response_format={"type": "json_object", "schema": SCHEMA}, max_tokens=60
    ),
    "a chat in text": lambda llm: chat(llm, response_format={"type": "text"}),
    "a chat with a stop": lambda llm: [chat(llm, stop=s) for s in ("the", ["the"])],
    "a chat with a grammar": lambda llm: chat(llm, grammar=yes_or_no()),
    "a chat without a limit": lambda llm: llm.create_chat_completion(ASK, temperature=0)["usage"],
    "tools": lambda llm: [chat(llm, tools=TOOLS, tool_choice=c) for c in ("auto", "none")],
    "functions": lambda llm: chat(llm, functions=[TOOLS[0]["function"]], function_call="auto"),
    "what a tool said": lambda llm: chat(llm, CALLED),
    "other roles and fields": lambda llm: [
        chat(llm, [{"role": "user", "name": "bob", "content": "Hi"}]), chat(llm, [{"role": "wizard", "content": "Hi"}]),
        chat(llm, [*ASK, {"role": "assistant", "content": "Once"}]),
    ],
    "bytes to tokens": lambda llm: [
        llm.tokenize(b) for b in (b"Hello, world", b"\xff\xfe", b"a\0b", "\u00e9".encode()[:1], b"")
    ],
    "tokens to bytes": lambda llm: [llm.detokenize(llm.tokenize(b"Hello, world")), llm.detokenize(np.array([5, 600]))],
    "what the header says": lambda llm: sorted(llm.metadata.items()),
    "attributes": lambda llm: [
        llm.verbose, llm.chat_handler, llm.last_n_tokens_size, llm.n_batch, llm.cache, llm.spm_infill,
        llm.n_threads > 0, llm.n_threads_batch > 0, llm.model_path,
    ],
    "a cache": cached,
    "reset": lambda llm: (llm.reset(), llm(PROMPT, **GREEDY))[1],
    "a copy": lambda llm: pickle.loads(pickle.dumps(llm))(PROMPT, **GREEDY),
    "log-probabilities": lambda llm: llm(PROMPT, logprobs=2, **GREEDY),
    "log-probabilities of a chat": lambda llm: chat(llm, logprobs=True, top_logprobs=2),
}  # fmt: skip


def comparable(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: comparable(v) for k, v in x.items() if k not in ("id", "created")}
    if isinstance(x, float | np.floating):
        return float(x)
    return [comparable(v) for v in x] if isinstance(x, list | tuple) else x


def nearly(x: Any) -> Any:
    """Equal to what differs from it by rounding alone.

    On AMX a pass with guesses gives other bits than one without, and this model's log-probabilities differ by 0.03.
    """
    if isinstance(x, dict):
        return {k: nearly(v) for k, v in x.items()}
    if isinstance(x, list):
        return [nearly(v) for v in x]
    return pytest.approx(x, abs=0.1) if isinstance(x, float) else x


# The whole context takes long.
OFTEN = {*list(PROGRAMS)[::2], "tools"} - {"no limit", "a chat without a limit"}


@pytest.mark.full
@pytest.mark.parametrize("name", mostly_daily(PROGRAMS, OFTEN))
def test_the_same_program_on_both(both: tuple[Any, Duo], name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = (comparable(PROGRAMS[name](llm)) for llm in both)
    assert ours == nearly(theirs)


@pytest.mark.parametrize("program,kind", [
    (lambda llm: llm("a " * 2000, **GREEDY), ValueError),
    (lambda llm: chat(llm, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "no"}}), ValueError),
    (lambda llm: llm(PROMPT, top_q=1), TypeError),
    (lambda llm: chat(llm, top_q=1), TypeError),
    (lambda llm: llm(PROMPT.encode(), **GREEDY), TypeError),
    (lambda llm: llm.no_such_member, AttributeError),
], ids=["too long", "no such tool", "keyword", "keyword of a chat", "bytes", "member"])  # fmt: skip
def test_the_same_mistake_on_both(both: tuple[Any, Duo], program: Any, kind: type[Exception]) -> None:
    for llm in both:
        with pytest.raises(kind):
            program(llm)


def test_what_differs_is_refused_by_one_sentence(both: tuple[Any, Duo]) -> None:
    """docs/llama_cpp.md names each: llama_cpp writes something else there, or fails without a reason."""
    _, d = both
    for program in (
        lambda: d(PROMPT, stop=[""], **GREEDY), lambda: d([PROMPT, PROMPT], **GREEDY), lambda: d([], **GREEDY),
        lambda: d(PROMPT, temperature=-1.0), lambda: chat(d, response_format={"type": "yaml"}), lambda: chat(d, []),
        lambda: chat(d, [{"role": "user", "content": None}]), lambda: d.create_embedding("x"),
        lambda: Duo.from_pretrained("a/b", "*.gguf", local_dir="x"), lambda: Duo(vocab_only=True, draft=DRAFT),
        lambda: Duo(TARGET, swa_full=False), lambda: Duo(TARGET, DRAFT, vocab_only=True, verify_host="localhost:1"),
    ):  # fmt: skip
        with pytest.raises(DuoError) as e:
            program()
        assert isinstance(e.value, ValueError) and "\n" not in str(e.value)


def test_a_format_that_is_chosen_later(both: tuple[Any, Duo]) -> None:
    llama, d = both
    before = chat(d)
    for llm in both:
        llm.chat_format = "llama-2"
    theirs, ours = map(chat, (llama, d))
    assert comparable(ours) == comparable(theirs) and ours["usage"] != before["usage"]
    llama.chat_format, d.chat_format = "chat_template.default", None
    assert (d.chat_handler, comparable(chat(d))) == (None, comparable(before))


def test_a_vocabulary_alone(both: tuple[Any, Duo]) -> None:
    llama = llama_cpp.Llama(str(TARGET), vocab_only=True, verbose=False)
    with Duo(str(TARGET), vocab_only=True) as d:
        ids = llama.tokenize(PROMPT.encode())
        assert (d.tokenize(PROMPT.encode()), d.detokenize(ids)) == (ids, llama.detokenize(ids))
        assert (d.n_vocab(), d.token_eos(), d.metadata) == (llama.n_vocab(), llama.token_eos(), llama.metadata)
        for call in (lambda: d(PROMPT), lambda: next(d.stream(PROMPT)), lambda: chat(d)):
            with pytest.raises(DuoError, match="loaded with vocab_only or embedding and cannot write"):
                call()
    with Duo(vocab_only=True) as demo:
        assert demo.draft is None and demo.tokenize(PROMPT) == ids


WHERE: list[dict[str, Any]] = [{"offload_kqv": False}, {"op_offload": False}, {"op_offload": None}, {"swa_full": True}]


@pytest.mark.parametrize("options", mostly_daily(WHERE, WHERE[:2]))
def test_where_the_cache_and_prompts_are_computed(options: dict[str, Any]) -> None:
    """On a CPU this changes nothing; that the options arrive is seen in what the models were loaded with."""
    with llama_and_duo(**LOAD, **options) as (llama, d):
        assert (d.placed.target.offload_kqv, d.placed.draft.offload_kqv) == (options.get("offload_kqv", True),) * 2
        assert d.placed.target.op_offload == (options.get("op_offload") is not False)
        assert comparable(d(PROMPT, **GREEDY)) == comparable(llama(PROMPT, **GREEDY))


def test_a_cache_of_states_is_shared() -> None:
    """As in llama-cpp-python's tests: what one has read, the other need not read again."""
    cache, ids = LlamaCache(), [7, 8, 9, 10, 11]
    with Duo(**LOAD) as writer:
        writer.set_cache(cache)
        right = writer(ids, **GREEDY)["choices"][0]["text"]
        assert writer.cache is cache and next(iter(cache.cache_state))[: len(ids)] == tuple(ids)
    drawn = {"max_tokens": 8, "temperature": 1.0}
    with Duo(**LOAD | {"seed": 42}) as alone:
        drawn_text = alone(ids, **drawn)["choices"][0]["text"]
    for stream in (False, True):
        loaded: list[Any] = []
        with Duo(**LOAD | {"seed": 42}) as reader:
            load = reader.load_state

            def counted(state: Any, load: Any = load, loaded: list[Any] = loaded) -> None:
                load(state)
                loaded.append(state)

            reader.load_state = counted  # type: ignore[method-assign]
            reader.set_cache(cache)
            found = reader(ids, stream=stream, **GREEDY)
            assert (texts(found) if stream else found["choices"][0]["text"]) == right and len(loaded) == 1
            assert reader(ids, **GREEDY)["choices"][0]["text"] == right and len(loaded) == 1  # it has it itself
            assert reader(ids, **drawn)["choices"][0]["text"] == drawn_text  # with its own seed, not the writer's
            with pytest.raises(BadValueError, match="set_cache got int"):
                reader.set_cache(5)
            reader.set_cache(None)
            chat(reader)
            assert reader.cache is None and len(loaded) == 1


def test_a_cache_of_states_ends_no_text() -> None:
    """It may hold what other models have written, and it cannot be used while the thread has a stream open."""
    cache, ids = LlamaCache(), [7, 8, 9, 10, 11]
    with Duo(**LOAD, n_parallel=2) as d:
        right = d(ids, **GREEDY)["choices"][0]["text"]
        d(ids[::-1], **GREEDY)
        cache[ids] = SimpleNamespace(input_ids=np.array(ids), llama_state_size=1)
        d.set_cache(cache)
        assert d(ids, **GREEDY)["choices"][0]["text"] == right
        kept = len(cache.cache_state)
        assert kept == 2
        with d.stream(ids[:3], max_tokens=8) as other:
            next(other)
            assert d(ids, **GREEDY)["choices"][0]["text"] == right and len(cache.cache_state) == kept
