"""Rules of acceptance (--accept) with real models: options, what is said of them, modes, grammars, penalties."""

import json
import math
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from conftest import HELD
from prompts import PROMPTS
from sizes import mostly_daily, size

from duo import Duo, DuoError, _core
from duo.benchmark.doctor import options
from duo.cli.main import main
from duo.generation.job import sampling
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.options.accept import promise
from duo.options.validate import generate_options

TARGET, DRAFT = demo_pair()
RULES = ["noise", "rejection", "typical", "top-n"]
TREES = ["[[0],[1],[0,0],[0,1]]", "dynamic", "chain"]
PROMPT = PROMPTS[0]
NO_TEMPERATURE = {"temperature": 0.0, "seed": 1, "max_tokens": 40}


@pytest.fixture(scope="module")
def pair() -> Iterator[Duo]:
    with Duo(TARGET, DRAFT, n_ctx=512, n_ctx_draft=512, n_parallel=2) as d:
        yield d


@pytest.fixture(scope="module")
def held() -> Iterator[Duo]:
    with SwitchedDuo(TARGET, DRAFT, n_ctx=512, **HELD) as d:
        yield d


@pytest.mark.parametrize(
    ("rule", "mode"),
    mostly_daily(product(RULES, ["async", "sync"]), [*((rule, "async") for rule in RULES), ("rejection", "sync")]),
)
def test_every_rule_writes_in_every_mode(held: Duo, rule: str, mode: str) -> None:
    r = held.generate(PROMPT, max_tokens=80, seed=2, temperature=0.8, accept=rule, mode=mode, n_draft=4)
    assert len(r.tokens) == 80 or r.finish_reason == "stop"
    assert r.timings["draft_n_accepted"] > 10
    assert (r.timings["passes_ahead_n"] > 0) == (mode == "async")


@pytest.mark.parametrize(
    ("rule", "tree"), mostly_daily(product(RULES[1:], TREES), [*zip(RULES[1:], TREES, strict=True)])
)
def test_trees_and_ngrams_work_with_every_rule(pair: Duo, rule: str, tree: str) -> None:
    r = pair.generate(
        PROMPT, max_tokens=60, seed=3, accept=rule, draft_tree=json.loads(tree) if "[" in tree else tree, n_draft=4,
        mode="sync",
        spec_type=["draft-simple", "ngram-map-k"], ngram_size_n=3, ignore_eos=True,
    )  # fmt: skip
    assert len(r.tokens) == 60
    assert r.timings["draft_n_accepted"] > 5


@pytest.mark.parametrize("rule", RULES[1:])
def test_without_a_temperature_all_rules_are_the_same(pair: Duo, rule: str) -> None:
    want = pair.generate(PROMPT, mode="plain", **NO_TEMPERATURE).tokens
    assert pair.generate(PROMPT, accept=rule, n_draft=4, **NO_TEMPERATURE).tokens == want


@pytest.mark.parametrize("rule", RULES[1:])
def test_without_guesses_all_rules_are_the_same(pair: Duo, rule: str) -> None:
    text: dict[str, Any] = {"mode": "plain", "seed": 4, "max_tokens": 40, "temperature": 1.0}
    assert pair.generate(PROMPT, accept=rule, **text).tokens == pair.generate(PROMPT, **text).tokens


@pytest.mark.parametrize(
    ("rule", "mode"),
    mostly_daily(product(RULES, ["async", "sync"]), [*zip(RULES, ("sync", "async", "sync", "async"), strict=True)]),
)
def test_grammar_and_penalties_hold(pair: Duo, rule: str, mode: str) -> None:
    r = pair.generate(
        "The numbers: ", max_tokens=40, seed=5, temperature=1.0, accept=rule, mode=mode, n_draft=3, repeat_penalty=1.1,
        presence_penalty=0.5, dry_multiplier=0.5, xtc_probability=0.5,
        grammar='root ::= ("one " | "two " | "three ")+ "."',
    )  # fmt: skip
    assert re.fullmatch(r"(one |two |three )*[a-z ]*\.?", r.text)
    schema = pair.generate("A value: ", max_tokens=60, seed=6, accept=rule, mode=mode, json_schema={"type": "boolean"})
    assert json.loads(schema.text) in (True, False)


def test_hooks_and_logprobs_go_with_rejection(pair: Duo) -> None:
    seen: list[int] = []

    def hook(ids: Any, scores: Any) -> Any:
        seen.append(len(ids))
        return scores

    r = pair.generate(PROMPT, max_tokens=30, seed=7, accept="rejection", logits_processor=hook, logprobs=2, n_draft=3,
                      ignore_eos=True)  # fmt: skip
    assert len(r.tokens) == 30
    assert seen == list(range(seen[0], seen[0] + len(seen)))  # each token once, in order


def test_several_texts_each_have_their_rule(pair: Duo) -> None:
    want = pair.generate(PROMPT, seed=8, max_tokens=50, mode="plain").tokens
    noise = pair.stream(PROMPT, seed=8, max_tokens=50)
    other = pair.stream(PROMPT, seed=8, max_tokens=50, accept="rejection", n_draft=4)
    assert tuple(c.token for c in noise if c.token is not None) == want
    assert sum(c.token is not None for c in other) == 50


def test_the_distribution_is_what_a_text_is_drawn_from() -> None:
    """The probabilities after filters, against those made of the logits here, and the share of actual draws."""
    probe = _core.Probe(options(str(TARGET), 1, [], 512))
    text = probe.tokenize(PROMPT)
    probe.decode(text)
    o = {"temperature": 0.7, "top_k": 12, "top_p": 1.0, "min_p": 0.0}
    row = probe.logits()[-1]
    best = sorted(range(len(row)), key=lambda t: -row[t])[:12]
    weights = [math.exp((float(row[t]) - float(row[best[0]])) / 0.7) for t in best]
    found = probe.chances(len(text) - 1, sampling(generate_options(o, "generate"), 1), text)
    assert [t for t, _ in found] == best
    for (_, logp), w in zip(found, weights, strict=True):
        assert math.exp(logp) == pytest.approx(w / sum(weights), rel=1e-4)
    n = 4000
    counts = dict.fromkeys(best, 0)
    for seed in range(n):
        how = sampling(generate_options(o, "generate"), seed)
        counts[probe.candidates(len(text) - 1, how, text, 1)[0][0]] += 1
    for t, logp in found:
        p = math.exp(logp)
        assert abs(counts[t] - n * p) < 5 * math.sqrt(n * p * (1 - p)) + 1


@pytest.mark.full
@pytest.mark.random
def test_texts_have_the_targets_distribution(held: Duo) -> None:
    """The first two tokens of many texts: with rejection as often as with the target alone."""
    text: dict[str, Any] = {"max_tokens": 3, "temperature": 1.0, "top_k": 6, "top_p": 1.0, "min_p": 0.0}
    n, n_accepted = size(200, 3000), 0

    def counts(**o: Any) -> dict[tuple[int, ...], int]:
        nonlocal n_accepted
        found: dict[tuple[int, ...], int] = {}
        for seed in range(n):
            r = held.generate(PROMPT, seed=seed, **text, **o)
            tokens = tuple(r.tokens[:2])
            found[tokens] = found.get(tokens, 0) + 1
            n_accepted += r.timings.get("draft_n_accepted", 0)
        return found

    want = counts(mode="plain")
    got = counts(mode="sync", n_draft=2, accept="rejection")
    cells = [(a, got.get(t, 0)) for t, a in want.items() if a >= 12]
    assert len(cells) >= 5 and n_accepted > n / 2
    chi2 = sum((a - b) ** 2 / (a + b) for a, b in cells)
    assert (chi2 - len(cells)) / math.sqrt(2 * len(cells)) < 5.0


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--accept", "greedy", "accept (--accept) is 'greedy', but input should be 'noise', 'rejection', 'typical' or"),
        ("--posterior-threshold", "1.5", "posterior_threshold (--posterior-threshold) is '1.5'"),
        ("--posterior-alpha", "-1", "posterior_alpha (--posterior-alpha) is '-1'"),
        ("--accept-top", "0", "accept_top (--accept-top) is '0'"),
    ],
)
def test_wrong_values_are_reported_in_one_sentence(
    option: str, value: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-p", PROMPT, option, value]) == 1
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("rule", mostly_daily(RULES, ["rejection", "top-n"]))
def test_the_first_line_says_what_the_rule_keeps(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-p", PROMPT, "-n", "2", "--accept", rule, "--posterior-alpha", "0.2", "--accept-top", "2"]) == 0
    line = capsys.readouterr().err.splitlines()[0]
    assert (promise(rule) in line) == (rule != "noise")
    assert ("lossy" in line) == (rule in ("typical", "top-n"))
    for args in (["--mode", "plain"], ["--temp", "0"]):
        assert main(["-p", PROMPT, "-n", "2", "--accept", rule, *args]) == 0
        assert "acceptance" not in capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize("rule", mostly_daily(RULES, ["noise", "typical"]))
def test_check_says_what_the_rule_keeps(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(TARGET), str(DRAFT), "--accept", rule]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == promise(rule)
    assert main(["check", str(TARGET), str(DRAFT), "--accept", rule, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["acceptance"] == promise(rule)


def test_an_unknown_rule_is_refused_by_a_program(pair: Duo) -> None:
    with pytest.raises(DuoError, match="accept"):
        pair.generate(PROMPT, accept="argmax")
