"""The list of pairs that comes with duo."""

import re
import shlex

from real_files import CODER, CODER_DRAFT, brought

from duo import Duo
from duo.cli.commands.run import command as run_command
from duo.models import pairs
from duo.models.demo import demo_pair
from duo.models.hub.listing import choose
from duo.models.hub.repository import Hub
from duo.options.speculation import NGRAMS


def test_the_list_has_a_dozen_real_pairs_and_the_demo() -> None:
    known = pairs.entries()
    assert "demo" in known
    real = [e.pair for e in known.values() if e.pair.target.repo is not None]
    assert len(real) >= 12
    for p in real:
        assert p.licence and p.placement, p.name
        assert p.target.memory_gb is not None and p.target.memory_gb > p.draft_gb, p.name
        assert p.draft is None or (p.draft.repo is not None and p.draft.memory_gb is not None), p.name
        assert p.draft is not None or (p.ngrams and p.sources), p.name
        assert p.target != p.draft, p.name


def test_the_list_has_the_families_that_people_run() -> None:
    known = {name: e.pair for name, e in pairs.entries().items()}
    mixtures = {
        "gpt-oss-20b", "gpt-oss-120b", "qwen3-30b-a3b", "qwen3-coder-30b-a3b", "qwen3.6-35b-a3b", "glm-4.5-air",
        "gemma-4-26b-a4b", "glm-4.7-flash", "glm-5.1", "kimi-k2", "minimax-m2.7", "nemotron-3-nano", "step-3.5-flash",
        "qwen3-coder-next", "deepseek-v4-flash", "lfm2-8b-a1b",
    }  # fmt: skip
    assert all(known[name].target.dense_gb for name in mixtures)
    assert all(p.ngrams for p in known.values() if p.target.repo is not None), "each says when n-grams help"
    assert {name for name, p in known.items() if p.own_layers} >= {"qwen3.6-27b", "qwen3.5-9b", "glm-4.5-air"}
    assert known["demo-eagle3"].head == "eagle3"
    assert all(p.sources for p in known.values() if p.gain)


def test_every_gain_says_who_measured_it() -> None:
    """A thread (llama.cpp #1), a repository (user/repo) or a page (site/path) stands in brackets behind each one."""
    claims = [(e.pair, claim) for e in pairs.entries().values() for claim in (e.pair.gain or "").split(";") if claim]
    assert len(claims) >= 20
    for pair, claim in claims:
        who = re.search(r"\(([\w.-]+((/[\w.-]+)+|(/[\w.-]+)* #\d+))\)$", claim)
        assert who, claim
        assert any(who[1] in re.sub(r"/(pull|issues)/", " #", x) for x in pair.sources), f"{pair.name}: {who[1]}"


def test_no_text_of_the_list_ends_at_a_hash() -> None:
    """YAML takes " #" for a comment where there are no quotes."""
    for name, e in pairs.entries().items():
        p = e.pair
        for text in filter(None, (p.ngrams, p.gain, p.notes, *p.sources, *p.placement)):
            assert text.count("(") == text.count(")"), (name, text)


def test_the_pair_of_llama_duos_readme_has_its_files() -> None:
    p = pairs.find("llama-3-70b").pair
    assert str(p.target.repo) == "QuantFactory/Meta-Llama-3-70B-Instruct-GGUF-v2"
    assert p.target.file == "Meta-Llama-3-70B-Instruct-v2.Q8_0-00001-of-00003.gguf"
    assert p.draft.file == "Meta-Llama-3-8B-Instruct-v2.Q8_0.gguf"


def test_the_pair_that_benchmarks_measure_is_listed_with_the_same_files() -> None:
    p = pairs.find("qwen2.5-coder-1.5b").pair
    for ref, name in ((p.target, CODER), (p.draft, CODER_DRAFT)):
        repo, file = brought.MODELS[name].hub
        assert ref.repo == repo and choose([file], ref.quant) == file, name


def test_every_suggested_placement_is_made_of_duos_options() -> None:
    for name, e in pairs.entries().items():
        for box, options in e.pair.placement.items():
            assert options, (name, box)
            assert "-cmoe" not in options, (name, box, "-ngl auto keeps fewer experts in RAM")
            assert (e.pair.spec_type == NGRAMS) == (NGRAMS in options), (name, box, "nothing else would guess")
            with run_command.make_context("run", ["--pair", name, *shlex.split(options)]) as ctx:
                assert ctx.params["pair"] == name, box


def test_the_demo_pair_is_the_packages_own() -> None:
    assert pairs.paths("demo", Hub(endpoint="http://127.0.0.1:9").fetch) == demo_pair()
    with Duo.from_pair("demo", n_ctx=256) as d:
        assert d.generate("Once", max_tokens=2).text
