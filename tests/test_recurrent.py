"""Models that keep a recurrent state, and other architectures that only random weights are at hand for.

A wrong guess is taken back by a snapshot of the state, or from a copy that was made before. Whatever guesses, the text
is that of plain decoding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import HELD
from gguf_files import tiny_mamba
from model_files import options
from model_files import run as run_passes
from sizes import LARGE, mostly_daily, mostly_proof, size
from tiny_models import CELLS, COMPRESSED, KEPT, SNAPSHOTS, tiny

from duo import Duo, _core
from duo.benchmark import doctor
from duo.cli.main import main
from duo.errors import BadValueError
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.placement.memory import need_of
from duo.placement.states import N_MARKS, n_states, state_bytes

pytestmark = pytest.mark.full

TARGET, DRAFT = demo_pair()
NGRAM: dict[str, Any] = {"spec_type": ["ngram-map-k"], "ngram_size_n": 1, "ngram_size_m": 4}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
SEEDED: dict[str, Any] = {"temperature": 0.8, "seed": 1, "max_tokens": 40, "ignore_eos": True}
PROMPT = "once upon a time there was a little town, once upon a time there was a"
# Ways to keep and to take back; COMPRESSED is daily. Below, tests of pairs and of several prompts have mamba.
USUAL = ("qwen35", "falcon-h1", "gpt-oss")
DAILY = ("mamba", "minimax-01", "nemotron_h", "lfm2", "kimi-k3", "deepseek4", "qwen3next", "rwkv7", "llama4")
# Each mode and each way to sample; `make proof` has all pairs.
MODES_AND_SAMPLINGS = (
    list(product(("plain", "sync", "async"), (0, 1))) if LARGE else [("plain", 1), ("sync", 0), ("async", 1)]
)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_mamba(DRAFT, tmp_path_factory.mktemp("recurrent") / "mamba.gguf")


@contextmanager
def pair_of(name: str, folder: Path, **options: Any) -> Iterator[tuple[Path, Duo]]:
    target = tiny(name, DRAFT, folder / "target.gguf")
    draft = tiny(name, DRAFT, folder / "draft.gguf", apart=0.02)
    with SwitchedDuo(target, draft, n_ctx=256, always=True, **options) as d:
        yield target, d


@pytest.mark.random
@pytest.mark.parametrize("name", mostly_proof(SNAPSHOTS + COMPRESSED + KEPT + CELLS, USUAL, DAILY))
def test_guesses_do_not_change_the_text(name: str, tmp_path: Path) -> None:
    n_drafted = n_accepted = 0
    # Stock kernels compute some small products of Qwen3-Next and others, so only --strict promises them equal bits.
    with pair_of(name, tmp_path, strict=True) as (target, d):
        with SwitchedDuo(target, n_ctx=256, strict=True, always=True) as alone:
            plain = [alone.generate(PROMPT, **o).tokens for o in (GREEDY, SEEDED)]
            for i, o in enumerate((GREEDY, SEEDED)[: size(1, 2)]):
                assert alone.generate(PROMPT, **o, **NGRAM).tokens == plain[i]
        for mode, i in MODES_AND_SAMPLINGS:
            text = d.generate(PROMPT, mode=mode, **(GREEDY, SEEDED)[i])
            assert (text.tokens, text.warning) == (plain[i], ""), mode
            n_drafted += text.timings.get("draft_n", 0)
            n_accepted += text.timings.get("draft_n_accepted", 0)
    assert n_accepted > 20
    assert name not in SNAPSHOTS + COMPRESSED + KEPT or n_drafted > n_accepted  # some were taken back


@pytest.mark.parametrize("name", mostly_daily(["qwen35", "lfm2", "mamba", "falcon-h1"], ["qwen35"]))
def test_guesses_do_not_change_the_text_of_stock_kernels(name: str, tmp_path: Path) -> None:
    with pair_of(name, tmp_path, cpu_kernels="stock", strict=True) as (target, d):
        with Duo(target, n_ctx=256, cpu_kernels="stock", strict=True) as alone:
            want = alone.generate(PROMPT, **GREEDY).tokens
        for mode in ("sync", "async"):
            assert d.generate(PROMPT, mode=mode, **GREEDY).tokens == want


def test_a_pair_of_which_one_has_a_state(mamba: Path) -> None:
    want = []
    for target, draft in ((TARGET, mamba), (mamba, DRAFT)):
        with Duo(target, n_ctx=256) as alone:
            want.append(alone.generate(PROMPT, **GREEDY).tokens)
        with SwitchedDuo(target, draft, n_ctx=256, **HELD) as d:
            for mode in ("sync", "async"):
                text = d.generate(PROMPT, mode=mode, **GREEDY)
                assert (text.tokens, text.warning) == (want[-1], "")
                assert text.timings["draft_n"] > 5
                assert (text.timings["passes_ahead_n"] > 0) == (mode == "async")


@pytest.mark.parametrize("guesses", mostly_daily([{}, NGRAM], [NGRAM]))
def test_a_recurrent_model_keeps_texts_apart(mamba: Path, guesses: dict[str, Any]) -> None:
    story = "It was a dark and stormy night, and the rain fell in torrents on the little town"
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 16}
    with SwitchedDuo(mamba, n_ctx=256, n_batch=8, always=True) as d:
        ids = d.tokenize(story)
        first = d.generate(ids, **options).tokens
        prompts = [ids, [*ids, *first], [*ids, *first[:5], 7], ids[:9], [*ids[:9], 400], ids, [5], ids]
        right = []
        for p in prompts:
            with Duo(mamba, n_ctx=256, n_batch=8) as fresh:
                right.append(fresh.generate(p, **options).tokens)
        assert len(set(right)) >= 6
        options |= guesses
        assert [d.generate(p, **options).tokens for p in prompts] == right
        for p, text in zip(prompts, right, strict=True):
            with d.stream(ids, max_tokens=-1, ignore_eos=True) as s:  # cut off wherever it is
                next(s)
            assert d.generate(p, **options).tokens == text
            d.stream(p).close()
            assert d.generate(p, **options).tokens == text


def test_ngrams_guess_for_a_recurrent_model(mamba: Path, run: Run) -> None:
    code, out, err = run("-m", mamba, "-p", "one two one two one two one", "-n", 8, "--json", "--temp", 0,
                         "--spec-type", "ngram-map-k", "-c", 128)  # fmt: skip
    assert code == 0, err
    assert "guesses from n-grams" in err.splitlines()[0]
    assert not json.loads(out)["warning"]


STORIES = [
    PROMPT,
    "the king said that he would give half of his land away, " * 6,
    "one two one two one two",
    "in the forest lived an old man who never spoke to anybody, in the forest " * 3,
]


# They round by how the company divides a prompt: the first by its recurrence, the others by the keys that they pool. So
# some texts differ: at most 5 of 24 were seen, on a loaded machine.
ROUNDS = ("minimax-01", "qwen4exp", "glm5-next")


@pytest.mark.random
@pytest.mark.parametrize("name", mostly_proof(SNAPSHOTS + KEPT, ("qwen35",), ("mamba", "lfm2", "qwen4exp", "rwkv7")))
def test_a_text_is_the_same_in_company_and_alone(name: str, tmp_path: Path) -> None:
    if name == "plamo2":
        pytest.skip("its graph of several texts is wrong, and it drafts for one text")
    n_drafted = n_other = 0
    asked = [{**o, "max_tokens": size(24, 40)} for o in (GREEDY, SEEDED)]
    with pair_of(name, tmp_path, strict=True) as (_, d):
        alone = [[d.generate(p, **o).tokens for p in STORIES] for o in asked]
    target, draft = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    with SwitchedDuo(target, draft, n_ctx=1024, n_parallel=3, always=True, strict=True) as d:
        for mode, i in MODES_AND_SAMPLINGS:
            texts = d.generate_many(STORIES, mode=mode, **asked[i])
            assert [t.warning for t in texts] == [""] * len(STORIES)
            n_other += sum(t.tokens != w for t, w in zip(texts, alone[i], strict=True))
            assert n_other <= (size(4, 8) if name in ROUNDS else 0), mode
            n_drafted += sum(t.timings.get("draft_n", 0) for t in texts)
    assert n_drafted > 0


@pytest.mark.daily
def test_texts_of_a_model_that_cannot_have_company_take_turns(tmp_path: Path) -> None:
    target = tiny("plamo2", DRAFT, tmp_path / "target.gguf")
    with Duo(target, DRAFT, n_ctx=256, strict=True) as d:
        want = [d.generate(p, **GREEDY).tokens for p in STORIES]
    with SwitchedDuo(target, DRAFT, n_ctx=1024, n_parallel=3, strict=True, always=True) as d:
        assert [t.tokens for t in d.generate_many(STORIES, **GREEDY)] == want
    with pytest.raises(BadValueError, match="can draft for one text at a time only"):
        Duo(DRAFT, target, n_ctx=256, n_parallel=2)


TURN = "the king said that he would give half of his land away, and the old clock struck twelve times. " * 6


@pytest.mark.parametrize(  # with one text and with several: a model that has snapshots, and one that has none
    ("name", "n_parallel"),
    mostly_daily(
        product(["qwen35", "nemotron_h", "jamba", "mamba"], [1, 2]),
        [("qwen35", 1), ("jamba", 2)],
    ),
)
def test_the_next_turn_of_a_chat_reads_only_what_is_new(name: str, n_parallel: int, tmp_path: Path) -> None:
    """The answer is not part of it as it was written, so the state at the end of the text is of no use."""
    with pair_of(name, tmp_path, strict=True, n_parallel=n_parallel) as (target, d):
        first = d.tokenize(TURN)
        asked = [*first, *d.tokenize(" And then?")]
        second = [*first[:-3], *d.tokenize(" Nobody knew why it did, but the king was afraid of it. " * 2)]
        with Duo(target, n_ctx=256, strict=True) as fresh:
            want = fresh.generate(second, **GREEDY).tokens
        d.generate(asked, **GREEDY)
        text = d.generate(second, **GREEDY)
        assert text.tokens == want
        assert len(first) - 40 < text.timings["cache_n"] < len(first)
        assert d.engine.usage["target"]["kept_bytes"] > 0


def test_a_text_that_left_the_cache_comes_back_with_its_states(tmp_path: Path) -> None:
    with pair_of("qwen35", tmp_path, strict=True, cache_ram=64) as (target, d):
        first = d.tokenize(TURN)
        second = [*first[:-3], *d.tokenize(" Nobody knew why.")]
        with Duo(target, n_ctx=256, strict=True) as fresh:
            want = fresh.generate(second, **GREEDY).tokens
        d.generate(first, **GREEDY)
        d.generate("in the forest lived an old man who never spoke", **GREEDY)
        text = d.generate(second, **GREEDY)
        assert text.tokens == want
        assert text.timings["cache_n"] > len(first) - 40


@pytest.mark.parametrize(
    "name", mostly_daily([n for n in SNAPSHOTS + KEPT if n != "plamo2"], ("qwen35", "mamba", "rwkv7"))
)
@pytest.mark.parametrize("n_parallel", mostly_daily([1, 3], [3]))
def test_the_memory_of_states_is_known_before(name: str, n_parallel: int, tmp_path: Path) -> None:
    target, log = tiny(name, DRAFT, tmp_path / "target.gguf"), tmp_path / "log"
    with Duo(target, DRAFT, n_ctx=256, n_parallel=n_parallel, log_file=log):
        pass
    taken = [float(x) for x in re.findall(r"llama_memory_recurrent: size = +([\d.]+) MiB", log.read_text())]
    header = read_header(target)
    one, n = sum(state_bytes(header)), n_states(header, draft=False, guesses=True, n_parallel=n_parallel)
    assert taken[-1] == pytest.approx(n * one / 2**20, rel=0.1, abs=0.01)
    need = need_of(header, 256, n_parallel=n_parallel, guesses=True)
    caches = [float(x) for x in re.findall(r"llama_kv_cache: size = +([\d.]+) MiB", log.read_text())][:-1]
    assert need.total_cache / 2**20 == pytest.approx(n * one / 2**20 + sum(caches), abs=0.0051 * (1 + len(caches)))
    assert need.host >= N_MARKS * n_parallel * one


SAID = {"qwen35": "snapshots are kept", "jamba": "without snapshots"}


@pytest.mark.parametrize(("name", "said"), SAID.items())
def test_check_says_how_a_model_goes_back(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tiny(name, DRAFT, tmp_path / "target.gguf")), str(DRAFT)]) == 0
    assert said in capsys.readouterr().out


@pytest.mark.daily
@pytest.mark.parametrize(("name", "said"), SAID.items())
def test_doctor_says_how_a_model_goes_back(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tiny(name, DRAFT, tmp_path / "target.gguf")
    monkeypatch.setattr(doctor, "N_CONTEXT", 48)  # what is measured behind it is the matter of test_doctor.py
    assert main(["doctor", "-m", str(target), "-t", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert any(said in sentence for sentence in report["verdict"])
    assert all(ms["16"] > 0 for ms in report["ms"].values())


@pytest.mark.parametrize("name", mostly_daily(["falcon-h1", "jamba"], ["falcon-h1"]))
def test_a_row_has_the_same_bits_in_company_and_alone(name: str, tmp_path: Path) -> None:
    """A pass over one row gets a second one, and is then taken back as a whole."""
    p = _core.Probe(options(tiny(name, DRAFT, tmp_path / "m.gguf")), False)
    want = run_passes(p, 5, 4)
    assert np.array_equal(run_passes(p, 5, 1), want[:6])
    assert np.array_equal(run_passes(p, 5, 3, 1), want)
    assert np.array_equal(run_passes(p, 1), want[:1])


def test_how_many_states_of_prompts_are_kept(mamba: Path) -> None:
    """Each further prompt has the one before as its beginning, and an end that is not gone on with."""
    short: dict[str, Any] = {"temperature": 0, "max_tokens": 1}

    def cached(**options: Any) -> list[int]:
        with Duo(mamba, n_ctx=1024, **options) as d:
            ids = d.tokenize("it was a dark and stormy night, and the rain fell in torrents on the little town " * 12)
            prompts = [[*ids[: n - 4], 5, 6, 7, 8] for n in (120, 240, 250, 130)]
            return [d.generate(p, **short).timings["cache_n"] for p in prompts][1:]

    assert cached() == [104, 224, 104]
    assert cached(ctx_checkpoints=0) == [0, 0, 0]
    assert cached(ctx_checkpoints=1) == [104, 224, 0]
    assert cached(checkpoint_min_step=500) == [104, 104, 104]
    for bad in ({"ctx_checkpoints": -1}, {"checkpoint_min_step": "x"}):
        with pytest.raises(BadValueError):
            Duo(mamba, **bad)


def test_embeddings_of_layers_are_read_when_needed(tmp_path: Path, run: Run) -> None:
    target = tiny("qwen4exp", DRAFT, tmp_path / "target.gguf")
    texts = {}
    for mode in ("auto", "off", "on"):
        log = tmp_path / f"{mode}.log"
        code, texts[mode], err = run("-m", target, "-c", 128, "-p", PROMPT, "-n", 8, "--temp", 0,
                                     "--spec-type", "none", "-lzm", mode, "--log-file", log)  # fmt: skip
        assert code == 0, err
        assert ("lazy read enabled" in log.read_text()) == (mode == "on")
    assert texts["on"] == texts["auto"] == texts["off"] != ""
