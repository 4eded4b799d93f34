"""Duo from Python: texts, chunks, figures, prompts of every kind, log-probabilities, options."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import need_llama_cpp, run_python
from sizes import mostly_daily

import duo
from duo import Chunk, Duo, DuoError, Result
from duo.models.demo import demo_pair

PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}


def test_generate_loads_writes_and_unloads() -> None:
    r = duo.generate(PROMPT, n_ctx=256, mode="sync", n_draft=4, **GREEDY)
    assert isinstance(r, Result)
    assert r.text
    assert len(r.tokens) == len(r.from_draft) == 24
    assert r.finish_reason == "length"
    assert r.warning == ""
    assert any(r.from_draft)
    target, draft = demo_pair()
    assert duo.generate(PROMPT, model=target, draft=str(draft), n_ctx=256, **GREEDY).tokens == r.tokens
    assert not any(duo.generate(PROMPT, model=target, n_ctx=256, **GREEDY).from_draft)


def test_stream_gives_the_same_text_in_pieces() -> None:
    whole = duo.generate(PROMPT, n_ctx=256, strict=True, **GREEDY)
    s = duo.stream(PROMPT, n_ctx=256, strict=True, **GREEDY)
    chunks = list(s)
    assert all(isinstance(c, Chunk) for c in chunks)
    assert "".join(c.text for c in chunks) == whole.text == s.result.text
    assert tuple(c.token for c in chunks[:-1]) == whole.tokens == s.result.tokens
    assert tuple(c.from_draft for c in chunks[:-1]) == s.result.from_draft
    assert [c.finish_reason for c in chunks] == [None] * 24 + ["length"]
    assert chunks[-1].token is None
    assert list(s) == []
    s.close()
    with pytest.raises(DuoError, match="closed"):
        _ = s._session.engine


@pytest.mark.parametrize("mode", ["plain", "sync", "async"])
@pytest.mark.parametrize("max_tokens", [1, 2, 40])
def test_figures_agree_with_each_other(duo_pair: Duo, mode: str, max_tokens: int) -> None:
    r = duo_pair.generate(PROMPT, mode=mode, max_tokens=max_tokens, seed=3, n_draft=4)
    t = duo_pair.timings
    assert t == r.timings
    assert t["prompt_n"] + t["cache_n"] == r.prompt_tokens == len(duo_pair.tokenize(PROMPT))
    assert t["predicted_n"] == len(r.tokens) <= max_tokens
    assert t["total_ms"] >= t["ttft_ms"] > 0
    assert t["prompt_ms"] > 0
    assert t["predicted_ms"] > 0
    assert t["prompt_per_token_ms"] == pytest.approx(t["prompt_ms"] / t["prompt_n"])
    assert t["prompt_per_second"] == pytest.approx(1e3 * t["prompt_n"] / t["prompt_ms"])
    assert 0 < t["target_busy_share"] <= 1
    assert json.loads(json.dumps(t)) == t
    if mode == "plain":
        assert not [name for name in t if name.startswith("draft")]
        assert not any(r.from_draft)
        return
    assert t["draft_n"] >= t["draft_n_accepted"] == sum(r.from_draft)
    assert t["draft_n"] <= 4 * t["draft_rounds"]
    assert t["draft_rounds"] <= len(r.tokens)
    assert 0 <= t["draft_acceptance"] <= 1
    assert 0 <= t["draft_busy_share"] <= 1
    assert 0 <= t["draft_hidden_share"] <= 1
    assert t["draft_mean_length"] == 1 + t["draft_n_accepted"] / max(1, t["draft_rounds"])
    by_position = t["draft_acceptance_by_position"]
    assert len(by_position) <= 4
    assert sorted(by_position, reverse=True) == by_position
    assert sum(by_position) * t["draft_rounds"] == pytest.approx(t["draft_n_accepted"])
    assert t["draft_hit_n"] <= t["predicted_n"]
    if max_tokens == 40 and mode == "sync":  # async may find that speculation does not pay here
        assert t["draft_rounds"] > 0


def test_unknown_keywords_are_type_errors(duo_pair: Duo) -> None:
    calls = {
        "Duo": lambda: Duo(n_contxt=5),
        "generate": lambda: duo_pair.generate(PROMPT, max_token=5),
        "stream": lambda: duo_pair.stream(PROMPT, temprature=5),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument"):
            call()
    with pytest.raises(TypeError, match=r"generate\(\) got an unexpected keyword argument 'foo'"):
        duo.generate(PROMPT, foo=1)
    with pytest.raises(TypeError, match=r"stream\(\) got an unexpected keyword argument 'foo'"):
        duo.stream(PROMPT, foo=1)
    with pytest.raises(TypeError, match="n_ctx"):
        duo_pair.generate(PROMPT, n_ctx=5)  # not a keyword of one text
    with pytest.raises(TypeError):
        Duo("a", "b", 5)  # type: ignore[misc]


def test_bad_values_are_one_sentence(duo_pair: Duo) -> None:
    for options in (
        {"max_tokens": 0}, {"max_tokens": -3}, {"temperature": -0.1}, {"temperature": float("nan")}, {"top_p": 1.1},
        {"top_k": 2**40}, {"seed": 2**64}, {"mode": "fast"}, {"n_draft": -1}, {"n_draft": 65}, {"n_draft": "many"},
        {"stop": ""}, {"stop": ["x", ""]}, {"stop": "a\0"}, {"stop": "\ud800"}, {"logprobs": 101},
        {"logit_bias": {4096: 1.0}}, {"logit_bias": {-1: 1.0}}, {"logit_bias": {5: float("nan")}},
        {"logit_bias": {5: float("inf")}}, {"repeat_penalty": 0}, {"draft_p_min": 2}, {"n_draft_min": -1},
    ):  # fmt: skip
        with pytest.raises(DuoError) as e:
            duo_pair.generate(PROMPT, **options)
        assert "\n" not in str(e.value)
        assert next(iter(options)) in str(e.value) or "stop string" in str(e.value)
        with pytest.raises(DuoError):  # as defaults too, and before anything is loaded
            Duo("no such file", **options)
    assert "draft_n" in duo_pair.generate(PROMPT, **GREEDY).timings
    assert "draft_n" not in duo_pair.generate(PROMPT, **{**GREEDY, "n_draft": 0}).timings


def test_defaults_for_every_text_can_be_given_once() -> None:
    with Duo(n_ctx=256, strict=True, temperature=0, max_tokens=5) as d:
        first = d.generate(PROMPT)
        assert len(first.tokens) == 5
        assert d.generate(PROMPT, max_tokens=7).tokens[:5] == first.tokens


@pytest.mark.parametrize("kind", [list, tuple, np.array, *[f"{s}int{n}" for s in ("", "u") for n in (16, 32, 64)]])
def test_prompts_are_text_or_ids_in_any_form(strict_pair: Duo, kind: Any) -> None:
    ids = strict_pair.tokenize(PROMPT)
    prompt = np.array(ids, dtype=kind) if isinstance(kind, str) else kind(ids)
    r = strict_pair.generate(prompt, **GREEDY)
    assert r.tokens == strict_pair.generate(PROMPT, **GREEDY).tokens
    assert r.prompt_tokens == len(ids)


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("", "empty"), ([], "empty"), (np.array([], dtype=int), "empty"), ("a\0b", "NUL character at position 1"),
        ("a\ud800", "not valid Unicode"), ([0, 4096], "token 1 of the prompt is 4096"), ([-1], "outside the"),
        ([2**40], "outside"), (np.array([2**63], dtype=np.uint64), "outside"), ([1.5], "give integers"),
        (np.array([1.0]), "give integers"), ([True], "give integers"), (["a"], "give integers"),
        (np.array([[1, 2]]), "give integers"), ([None], "give integers"),
    ],
)  # fmt: skip
def test_prompts_that_cannot_be_read(duo_pair: Duo, prompt: Any, why: str) -> None:
    with pytest.raises(DuoError, match=why):
        duo_pair.generate(prompt)


@pytest.mark.parametrize("prompt", [b"bytes", 5, None, np.array(5), object()])
def test_a_prompt_of_a_wrong_type_is_a_type_error(duo_pair: Duo, prompt: Any) -> None:
    with pytest.raises(TypeError, match="the prompt is"):
        duo_pair.generate(prompt)


def test_tokens_and_back(duo_pair: Duo) -> None:
    text = "Ein Märchen: 😀 <|im_start|> tab\tend\n"
    ids = duo_pair.tokenize(text, special=True)
    assert duo_pair.tokenize("<|im_start|>", add_bos=False) != duo_pair.tokenize(
        "<|im_start|>", add_bos=False, special=True
    )
    assert duo_pair.decode(ids, special=True).endswith(text)
    assert duo_pair.decode(duo_pair.tokenize(text, add_bos=False)) == text
    assert duo_pair.tokenize("", add_bos=False) == []
    for bad in ([4096], [-1], [2**70]):
        with pytest.raises(DuoError, match="outside the vocabulary"):
            duo_pair.decode(bad)
    for text in ("\0", "\udcff"):
        with pytest.raises(DuoError, match="the text"):
            duo_pair.tokenize(text)


# Another program's view of the same file: log-softmax of llama-cpp-python's logits, in a process of its own.
REFERENCE = """
import json, sys
import numpy as np
from llama_cpp import Llama
llm = Llama(sys.argv[1], n_ctx=512, logits_all=True, flash_attn=True, verbose=False)
n_prompt, ids = json.loads(sys.argv[2])
llm.eval(ids)
logits = llm.scores[n_prompt - 1 : len(ids) - 1].astype(np.float64)
logits -= logits.max(axis=1, keepdims=True)
logp = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
print(json.dumps([[float(row[t]) for row, t in zip(logp, ids[n_prompt:])], np.sort(logp)[:, ::-1][:, :5].tolist()]))
"""


FILTERED: dict[str, Any] = {"seed": 1, "repeat_penalty": 1.3, "logit_bias": {300: 5.0}}


@pytest.mark.parametrize("options", mostly_daily([{"temperature": 0}, FILTERED], [FILTERED]))
def test_logprobs_are_the_targets_before_any_filter(duo_pair: Duo, options: dict[str, Any]) -> None:
    need_llama_cpp()
    with Duo(n_ctx=512, cpu_kernels="stock") as stock:
        r = stock.generate(PROMPT, max_tokens=32, logprobs=5, **options)
    ids = duo_pair.tokenize(PROMPT)
    reference = run_python(REFERENCE, demo_pair()[0], json.dumps([len(ids), [*ids, *r.tokens]]))
    assert reference.returncode == 0, reference.stderr
    chosen, best = json.loads(reference.stdout.splitlines()[-1])
    assert [p.token for p in r.logprobs] == list(r.tokens)
    np.testing.assert_allclose([p.logprob for p in r.logprobs], chosen, atol=1e-3)
    np.testing.assert_allclose([[x for _, x in p.top] for p in r.logprobs], best, atol=1e-3)
    for p in r.logprobs:
        assert [x for _, x in p.top] == sorted((x for _, x in p.top), reverse=True)
        assert p.logprob <= p.top[0][1]
        assert dict(p.top).get(p.token, p.logprob) == p.logprob
    assert all(len(p.top) == 0 for p in duo_pair.generate(PROMPT, logprobs=0, **GREEDY).logprobs)
    assert duo_pair.generate(PROMPT, **GREEDY).logprobs == ()


def test_penalties_and_bias_act_on_the_text_alike_with_and_without_a_draft(strict_pair: Duo) -> None:
    plain = strict_pair.generate(PROMPT, temperature=0, max_tokens=40)
    common = max(set(plain.tokens), key=plain.tokens.count)
    seen = {plain.tokens}
    for options in (
        {"logit_bias": {common: float("-inf")}},
        {"logit_bias": {plain.tokens[3]: -100.0}},
        {"repeat_penalty": 1.5, "repeat_last_n": -1},
        {"presence_penalty": 5.0},
        {"frequency_penalty": 2.0},
        {"logit_bias": {265: 2.0}, "temperature": 0.8, "seed": 5},
    ):
        options = {"temperature": 0, "max_tokens": 40} | options
        texts = {strict_pair.generate(PROMPT, mode=mode, **options).tokens for mode in ("plain", "sync", "async")}
        assert len(texts) == 1, options
        assert not texts & seen, options
        seen |= texts
        if options.get("logit_bias") == {common: float("-inf")}:
            assert common not in texts.pop()


def test_a_bias_that_excludes_every_token_is_an_error(duo_pair: Duo) -> None:
    with pytest.raises(DuoError, match="no candidate token"):
        duo_pair.generate(PROMPT, logit_bias=dict.fromkeys(range(4096), float("-inf")))
    assert duo_pair.generate(PROMPT, **GREEDY).text


def test_seeds(strict_pair: Duo) -> None:
    a, b, c = (strict_pair.generate(PROMPT, max_tokens=24, seed=s).tokens for s in (1, 1, 2))
    assert a == b != c
    r = strict_pair.generate(PROMPT, max_tokens=24)  # any seed, and it says which
    assert strict_pair.generate(PROMPT, max_tokens=24, seed=r.seed).tokens == r.tokens
    assert strict_pair.generate(PROMPT, max_tokens=24).seed != r.seed
    assert strict_pair.generate(PROMPT, max_tokens=24, seed=2**64 - 1).tokens


def test_repr_and_properties_of_a_duo(duo_pair: Duo) -> None:
    target, draft = demo_pair()
    assert duo_pair.target.path == str(target)
    assert duo_pair.draft is not None
    assert duo_pair.draft.path == str(draft)
    assert duo_pair.target.n_ctx == 512
    assert duo_pair.target.n_vocab == 4096
    assert duo_pair.target.n_bytes > 8e6
    assert repr(duo_pair) == f"<Duo {target.name} + {draft.name}>"


def test_paths_of_any_kind(tmp_path: Path) -> None:
    odd = tmp_path / "mödel 🦆\n.gguf"
    odd.symlink_to(demo_pair()[0])
    raw = bytes(tmp_path) + b"/\xff\xfe.gguf"
    Path(duo.model.os.fsdecode(raw)).symlink_to(demo_pair()[1])
    with Duo(odd, raw, n_ctx=128) as d:  # type: ignore[arg-type]
        assert d.generate(PROMPT, **GREEDY).text
        assert d.target.path == str(odd)
    with pytest.raises(DuoError, match="empty"):
        Duo("")
    with pytest.raises(DuoError, match="NUL"):
        Duo("a\0b")
    with pytest.raises(DuoError, match="without a target"):
        Duo(draft="x")
    for name, what in (("model", "target"), ("log_file", "log file"), ("trace", "trace file")):
        with pytest.raises(TypeError, match=f"^the {what} is list; give the path of a file$"):
            Duo(**{name: [5]})  # type: ignore[arg-type]
