"""--context-shift: a text goes on when its context is full. In every mode it is the text of llama.cpp's own loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from conftest import EXACT, HELD
from hosts import host, remote
from mtp_models import foreseeing
from served import served
from sizes import LARGE, mostly_daily, mostly_proof, mostly_proof_of_two, size
from tiny_models import tiny

from duo import Duo
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

TARGET, DRAFT = demo_pair()
PROMPT = "Once upon a time there was a little tin soldier who lived in a box."
N_CTX = 256
SHIFT: dict[str, Any] = {"context_shift": True, "ignore_eos": True, "max_tokens": size(380, 900)}
GREEDY: dict[str, Any] = {**SHIFT, "temperature": 0}
SEEDED: dict[str, Any] = {**SHIFT, "temperature": 0.8, "seed": 3, "n_keep": -1, "n_discard": 40, "repeat_penalty": 1.1,
                          "max_tokens": size(300, 900)}  # fmt: skip
# A context that is full sooner. Those above fill all cells that libllama has for them, these do not.
LITTLE: dict[str, Any] = {"max_tokens": size(170, 900)}
N_LITTLE = 96
# Whether a passage of the text lies in what was left out or not, n-grams find it.
NGRAM: dict[str, Any] = {"spec_type": ["draft-simple", "ngram-map-k"], "ngram_size_n": 2}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def pair() -> Iterator[Duo]:
    with SwitchedDuo(TARGET, DRAFT, n_ctx=N_CTX, **HELD, **EXACT) as d:
        yield d


def shifting_loop(prompt: list[int], n_tokens: int, n_keep: int, n_discard: int) -> list[int]:
    """The greedy text of llama.cpp's library, shifted as llama-server does it (server-context.cpp)."""
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(TARGET).encode(), params)
    of_context = llama_cpp.llama_context_default_params()
    of_context.n_ctx, of_context.n_batch, of_context.n_threads, of_context.n_threads_batch = N_CTX, N_CTX, 1, 1
    of_context.flash_attn_type = 1
    context = llama_cpp.llama_init_from_model(model, of_context)
    memory = llama_cpp.llama_get_memory(context)
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    out: list[int] = []
    n_past, fresh = 0, prompt
    while True:
        batch = llama_cpp.llama_batch_init(len(fresh), 0, 1)
        batch.n_tokens = len(fresh)
        for i, token in enumerate(fresh):
            batch.token[i], batch.pos[i], batch.logits[i] = token, n_past + i, i + 1 == len(fresh)
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        assert llama_cpp.llama_decode(context, batch) == 0
        llama_cpp.llama_batch_free(batch)
        n_past += len(fresh)
        logits = llama_cpp.llama_get_logits_ith(context, len(fresh) - 1)
        out.append(int(np.ctypeslib.as_array(logits, (n_vocab,)).argmax()))
        fresh = out[-1:]
        if len(out) == n_tokens:
            break
        if n_past + 1 >= N_CTX:
            n_gone = n_discard or (n_past - n_keep) // 2
            llama_cpp.llama_memory_seq_rm(memory, 0, n_keep, n_keep + n_gone)
            llama_cpp.llama_memory_seq_add(memory, 0, n_keep + n_gone, n_past, -n_gone)
            n_past -= n_gone
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return out


@pytest.mark.parametrize(("n_keep", "n_discard"), mostly_daily([(0, 0), (20, 0), (-1, 30)], [(-1, 30)]))
def test_it_is_the_text_of_llama_cpps_loop(n_keep: int, n_discard: int) -> None:
    with Duo(TARGET, n_ctx=N_CTX, cpu_kernels="stock", n_threads=1) as d:
        tokens = d.tokenize(PROMPT)
        kept = (len(tokens) if n_keep < 0 else n_keep) + 1  # llama-server adds one for a BOS token
        options = GREEDY | {"logit_bias": {d.token_eos(): 0.0}, "ignore_eos": False}
        options |= {"max_tokens": 300} if n_discard else {}
        r = d.generate(PROMPT, n_keep=n_keep, n_discard=n_discard, **options)
    assert r.timings["context_shift_n"] >= 2
    want = shifting_loop(tokens, len(r.tokens), kept, n_discard)
    assert list(r.tokens) == want


@pytest.mark.random
@pytest.mark.parametrize("sampling", mostly_daily([GREEDY, SEEDED], [SEEDED]))
def test_no_mode_changes_the_text(pair: Duo, sampling: dict[str, Any]) -> None:
    want = pair.generate(PROMPT, mode="plain", **sampling)
    n_shifts = want.timings["context_shift_n"]
    ways: list[dict[str, Any]] = [NGRAM, {}, {"draft_tree": "dynamic", "n_draft": 8}, {"draft_window": 64}]
    assert n_shifts >= 2 and want.finish_reason == "length" and len(want.tokens) == sampling["max_tokens"]
    for mode in ("sync", "async"):
        i = 2 * (sampling is GREEDY) + (mode == "async")  # each way once; `make proof` has all products
        for more in ways if LARGE else [ways[i]]:
            r = pair.generate(PROMPT, mode=mode, **sampling, **more)
            assert (r.tokens, r.warning, r.timings["context_shift_n"]) == (want.tokens, "", n_shifts), (mode, more)
            assert r.timings["draft_n_accepted"] > 50


def test_the_noise_goes_on_where_it_was(pair: Duo) -> None:
    """Both models share the noise, so as many guesses are right behind the gap as before it."""
    o = {"temperature": 1.0, "seed": 5, "mode": "sync", "n_draft": 4, "ignore_eos": True}
    before = pair.generate(PROMPT, max_tokens=200, **o).timings["draft_acceptance"]
    whole = pair.generate(PROMPT, max_tokens=size(500, 900), context_shift=True, **o).timings["draft_acceptance"]
    assert whole > 0.6 * before > 0


# With YaRN, a shift would scale the keys of all texts, so a text is read again.
SCALED = {"rope_scaling_type": "yarn", "rope_freq_scale": 0.5}


@pytest.mark.random
@pytest.mark.parametrize("more", mostly_daily([{}, SCALED], [{}]))
def test_texts_at_once_are_those_alone(more: dict[str, Any]) -> None:
    prompts = [PROMPT, "The dog saw the cat", "A king had three sons"]
    with SwitchedDuo(TARGET, DRAFT, n_ctx=N_LITTLE, n_parallel=3, always=True, **EXACT, **more) as d:
        alone = [d.generate(p, **SEEDED | LITTLE) for p in prompts]
        assert min(r.timings["context_shift_n"] for r in alone) >= 2
        streams = [d.stream(p, **SEEDED | LITTLE) for p in prompts]
        for s in streams:
            for _ in s:
                pass
        assert [s.result.tokens for s in streams] == [r.tokens for r in alone]


# Sliding windows, also ones that reach back to what is kept; latent attention; recurrent states and positions in
# sections, which are both read again.
KINDS = ("gemma2", "llama4", "deepseek2", "gpt-oss", "qwen35", "mamba", "lfm2", "qwen2vl")
OFTEN = (("gemma2", 48), ("qwen35", 96))
DAILY = (("llama4", 96), ("deepseek2", 48), ("mamba", 48))


@pytest.mark.parametrize(("name", "n_ctx"), mostly_proof_of_two(KINDS, (96, 48), OFTEN, DAILY))
def test_all_kinds_of_caches(name: str, n_ctx: int, tmp_path: Path) -> None:
    target = tiny(name, DRAFT, tmp_path / "target.gguf")
    draft = tiny(name, DRAFT, tmp_path / "draft.gguf", apart=0.02)
    o = SEEDED | {"max_tokens": size(150, 200) if n_ctx > 48 else size(110, 200), "n_discard": 0}
    with SwitchedDuo(target, draft, n_ctx=n_ctx, strict=True, always=True) as d:
        want = d.generate("once upon a time", mode="plain", **o)
        assert want.timings["context_shift_n"] >= 2
        for mode in ("sync", "async"):
            r = d.generate("once upon a time", mode=mode, **o)
            assert (r.tokens, r.warning) == (want.tokens, ""), mode


# libllama moves keys of these types not at all, or not in all shapes (head sizes), so the text is read again.
@pytest.mark.daily
@pytest.mark.parametrize("kind", mostly_proof(["q8_0", "bf16", "q4_0"], ["q8_0"]))
def test_other_types_of_the_cache(kind: str) -> None:
    with SwitchedDuo(TARGET, DRAFT, n_ctx=N_LITTLE, type_k=kind, type_v=kind, strict=True, always=True) as d:
        want = d.generate(PROMPT, mode="plain", **GREEDY | LITTLE)
        assert d.generate(PROMPT, mode="sync", **GREEDY | LITTLE).tokens == want.tokens
        assert want.timings["context_shift_n"] >= 2


def test_mtp_layers_go_on_behind_the_gap(tmp_path: Path) -> None:
    target = foreseeing("hy_v3", DRAFT, tmp_path / "target.gguf")
    o = GREEDY | {"max_tokens": 200}
    with SwitchedDuo(target, n_ctx=96, strict=True, spec_type="draft-mtp", always=True) as d:
        want = d.generate("once upon a time", mode="plain", **o)
        for mode in ("sync", "async"):
            r = d.generate("once upon a time", mode=mode, **o)
            assert (r.tokens, r.warning) == (want.tokens, ""), mode
        assert want.timings["context_shift_n"] >= 2 and r.timings["draft_n_accepted"] > 20


@pytest.mark.daily
def test_a_draft_on_another_machine() -> None:
    with host("draft") as h, remote("draft", h, n_ctx=N_LITTLE) as d:
        want = d.generate(PROMPT, mode="plain", **SEEDED | LITTLE)
        r = d.generate(PROMPT, mode="sync", **SEEDED | LITTLE)
        assert want.timings["context_shift_n"] >= 2
        assert (r.tokens, r.warning) == (want.tokens, "")
        assert r.timings["draft_n_accepted"] > size(34, 100)


def test_without_it_a_text_ends_with_its_context(pair: Duo) -> None:
    r = pair.generate(PROMPT, max_tokens=-1, ignore_eos=True, temperature=0, mode="plain")
    assert r.finish_reason == "length" and len(pair.tokenize(PROMPT)) + len(r.tokens) == N_CTX
    assert r.timings["context_shift_n"] == 0


@pytest.mark.daily  # the other tests shift, and test_grammar has every mode
def test_a_grammar_holds_behind_the_gap() -> None:
    o = SEEDED | LITTLE | {"grammar": 'root ::= ([a-z]+ "! ")+'}
    with SwitchedDuo(TARGET, DRAFT, n_ctx=N_LITTLE, **HELD, **EXACT) as d:
        want = d.generate(PROMPT, mode="plain", **o)
        assert want.timings["context_shift_n"] >= 2
        assert d.generate(PROMPT, mode="sync", **o).tokens == want.tokens
    assert set(want.text) <= set("abcdefghijklmnopqrstuvwxyz! ")


def test_minus_two_tokens_end_with_the_context(pair: Duo) -> None:
    r = pair.generate(PROMPT, max_tokens=-2, context_shift=True, ignore_eos=True, temperature=0, mode="plain")
    assert r.finish_reason == "length" and len(pair.tokenize(PROMPT)) + len(r.tokens) == N_CTX


@pytest.mark.parametrize("n_keep", mostly_daily([2**31 - 1, 10_000], [2**31 - 1]))
def test_more_than_the_context_cannot_be_kept(pair: Duo, n_keep: int) -> None:
    r = pair.generate(PROMPT, n_keep=n_keep, **GREEDY | {"max_tokens": 250}, mode="plain")
    assert len(r.tokens) == 250 and r.timings["context_shift_n"] >= 2
    assert pair.generate(PROMPT, n_keep=n_keep, max_tokens=3).finish_reason == "length"


def test_a_text_without_an_end_keeps_no_other_waiting() -> None:
    """They share a cache that has room for one of them."""
    long = " ".join(["The king had a horse."] * 30)
    with Duo(TARGET, DRAFT, n_ctx=N_CTX, n_parallel=2, **EXACT) as d:
        assert len(d.tokenize(long)) > N_CTX // 2
        with d.stream(PROMPT, context_shift=True, ignore_eos=True, temperature=0) as endless:
            for i, _ in enumerate(endless):
                if i > 2 * N_CTX:
                    break
            for _ in range(3):
                r = d.generate(long, max_tokens=20, ignore_eos=True, temperature=0)
                assert len(r.tokens) == 20
            assert next(iter(endless)).finish_reason is None  # and it goes on itself


def test_the_next_text_is_not_made_of_what_was_shifted(pair: Duo) -> None:
    """Cells behind the gap know of tokens that are gone. A prompt of what the context holds is read anew."""
    r = pair.generate(PROMPT, mode="plain", **GREEDY)
    prompt = [*pair.tokenize(PROMPT)[:1], *r.tokens[-120:]]
    o: dict[str, Any] = {"max_tokens": 20, "temperature": 0, "mode": "plain"}
    again = pair.generate(prompt, **o)
    assert again.timings["cache_n"] <= 1
    assert pair.generate(prompt, cache_prompt=False, **o).tokens == again.tokens


@pytest.mark.daily
def test_a_prompt_cache_is_not_written_from_a_cache_with_a_gap(tmp_path: Path) -> None:
    o = GREEDY | LITTLE | {"prompt_cache": tmp_path / "cache", "prompt_cache_all": True, "n_keep": 8}
    found = []
    for _ in range(2):
        with Duo(TARGET, DRAFT, n_ctx=N_LITTLE, **EXACT) as d:
            found.append(d.generate(PROMPT, **o))
    assert found[0].tokens == found[1].tokens
    assert found[0].warning == found[1].warning and "because the context was shifted" in found[0].warning
    assert not (tmp_path / "cache").exists() and found[1].timings["cache_n"] == 0


def test_the_command_takes_llama_cpps_options(run: Run) -> None:
    line = ["-m", str(TARGET), "-md", str(DRAFT), "-c", "128", "-n", "300", "--temp", "0", "--ignore-eos", "-p", PROMPT]
    code, out, _ = run(*line, "--context-shift", "--keep", "5", "--json")
    got = json.loads(out)
    assert code == 0 and got["timings"]["predicted_n"] == 300 and got["timings"]["context_shift_n"] >= 2
    code, out, _ = run(*line, "--no-context-shift", "--json")
    assert code == 0 and json.loads(out)["timings"]["predicted_n"] < 128
    code, _, err = run(*line, "--context-shift", "--keep", "-2")
    assert code == 1 and "--keep" in err and len(err.strip().splitlines()) == 1


def test_the_server_tells_that_a_text_was_truncated() -> None:
    with served({}, n_ctx=128, context_shift=True, **EXACT) as s:
        asked = {"prompt": PROMPT, "n_predict": 250, "temperature": 0, "ignore_eos": True, "n_keep": 4}
        got = s.post("/completion", asked).json()
        assert got["truncated"] and got["tokens_predicted"] == 250 and got["stop_type"] == "limit"
        assert got["generation_settings"]["n_keep"] == 4 and got["generation_settings"]["n_discard"] == 0
        assert not s.post("/completion", asked | {"n_predict": 10}).json()["truncated"]
        assert s.post("/completion", asked | {"n_keep": -2}).status_code == 400
