"""Rules of acceptance with one model on another machine: guesses are accepted, and their probabilities cross over."""

from itertools import product
from typing import Any

import pytest
from hosts import PROMPT, HostProcess, remote, until_it_helps
from sizes import mostly_daily

from duo import Duo
from duo.models.demo import demo_pair

pytest.importorskip("grpc")

TEXT: dict[str, Any] = {"temperature": 1.0, "max_tokens": 40, "seed": 3, "ignore_eos": True}


@pytest.mark.parametrize(
    ("role", "rule"),
    mostly_daily(
        product(["draft", "verify"], ["rejection", "typical", "top-n"]), [("draft", "rejection"), ("verify", "typical")]
    ),
)
def test_a_rule_holds_across_the_network(role: str, rule: str, request: pytest.FixtureRequest) -> None:
    h: HostProcess = request.getfixturevalue(f"{role}_host")
    with remote(role, h) as d:
        r = until_it_helps(d, accept=rule, **TEXT)
    assert len(r.tokens) == 40


@pytest.mark.parametrize("role", mostly_daily(["draft", "verify"], ["verify"]))
def test_rejection_takes_the_drafts_draws(role: str, request: pytest.FixtureRequest) -> None:
    """Without the draws, or without what they were drawn from, the target writes what it writes alone."""
    with Duo(demo_pair()[0], n_ctx=1024) as d:
        alone = d.generate(PROMPT, **TEXT).tokens
    with remote(role, request.getfixturevalue(f"{role}_host")) as d:
        there = until_it_helps(d, least=6, accept="rejection", n_draft=3, **TEXT)
    assert there.tokens != alone
