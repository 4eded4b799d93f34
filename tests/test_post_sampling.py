"""post_sampling_probs: the probabilities of what the samplers leave, in every mode."""

import math
from typing import Any

import pytest
from served import PROMPT as ASKED
from served import Server

from duo import BadValueError, Duo

PROMPT = "Once upon a time"
K, TEMPERATURE = 5, 0.7
SAMPLED: dict[str, Any] = {
    "max_tokens": 16, "seed": 3, "temperature": TEMPERATURE, "top_k": K, "top_p": 1.0, "min_p": 0.0, "logprobs": 10,
}  # fmt: skip


def test_they_are_of_what_the_samplers_leave(duo_pair: Duo) -> None:
    own = duo_pair.generate(PROMPT, mode="plain", **SAMPLED)
    for mode in ("plain", "sync", "async"):
        r = duo_pair.generate(PROMPT, mode=mode, post_sampling_probs=True, **SAMPLED)
        assert r.tokens == own.tokens
        for before, after in zip(own.logprobs, r.logprobs, strict=True):
            weights = [math.exp(p / TEMPERATURE) for _, p in before.top[:K]]
            assert [t for t, _ in after.top] == [t for t, _ in before.top[:K]]
            assert [math.exp(p) for _, p in after.top] == pytest.approx([w / sum(weights) for w in weights], rel=1e-3)
            assert after.logprob == dict(after.top)[after.token]


def test_greedy_is_certain_and_a_grammar_counts(duo_pair: Duo) -> None:
    r = duo_pair.generate(PROMPT, **{**SAMPLED, "temperature": 0}, post_sampling_probs=True)
    assert all((t.logprob, t.top) == (0.0, ((t.token, 0.0),)) for t in r.logprobs)
    r = duo_pair.generate(PROMPT, grammar="root ::= [0-9]+", post_sampling_probs=True, **(SAMPLED | {"logprobs": 100}))
    for t in r.logprobs:
        assert math.fsum(math.exp(p) for _, p in t.top) == pytest.approx(1, rel=1e-3)
        assert all(duo_pair.decode([i]).isdigit() or duo_pair.local_model.is_end(i) for i, _ in t.top)


def test_a_dynamic_temperature_is_one(duo_pair: Duo) -> None:
    o = {**SAMPLED, "temperature": 0, "dynatemp_range": 2.0, "post_sampling_probs": True}
    for t in duo_pair.generate(PROMPT, **o).logprobs:
        assert t.logprob == dict(t.top)[t.token] < 0 and len(t.top) == K


@pytest.mark.parametrize("other", [{"mirostat": 2}, {"samplers": "tk"}, {"logits_processor": lambda ids, row: row}])
def test_what_changes_rows_is_refused(duo_pair: Duo, other: dict[str, Any]) -> None:
    with pytest.raises(BadValueError, match="post_sampling_probs cannot be computed together with"):
        duo_pair.generate(PROMPT, post_sampling_probs=True, **(SAMPLED | other))


def test_the_server_answers_as_llama_server(server: Server) -> None:
    body = {"prompt": ASKED, "n_predict": 4, "n_probs": 3, "post_sampling_probs": True, "top_k": 2, "temperature": 1,
            "top_p": 1, "min_p": 0}  # fmt: skip
    for found in server.post("/completion", body).json()["completion_probabilities"]:
        assert found.keys() == {"id", "token", "bytes", "prob", "top_probs"}
        assert math.fsum(t["prob"] for t in found["top_probs"]) == pytest.approx(1, rel=1e-3)
        assert found["prob"] in [t["prob"] for t in found["top_probs"] if t["id"] == found["id"]]
    body["logprobs"] = body.pop("n_probs")  # another name
    assert len(server.post("/completion", body).json()["completion_probabilities"]) == 4
