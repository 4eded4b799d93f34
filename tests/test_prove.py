"""`duo prove`: it counts what differs, and finds each kind of fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from conftest import EXACT
from faulty_server import GAP, NEAR, faulty_server
from proofs import ITEM, SMALL
from sizes import mostly_daily

from duo import Duo
from duo.benchmark.bench.endpoint.address import parse_address
from duo.benchmark.bench.endpoint.bad_answer import BadAnswerError
from duo.benchmark.bench.endpoint.client import EndpointClient
from duo.benchmark.prove import plan as plans
from duo.benchmark.prove.cases import LENGTHS, NGRAMS, NONE, Case, Guesses, How, of_pair, of_server, reference_items
from duo.benchmark.prove.endpoint import ServerTextWriter
from duo.benchmark.prove.pair import PairWriter
from duo.benchmark.prove.plan import Item, ProofPlan
from duo.benchmark.prove.run import Proof
from duo.benchmark.prove.tally import Tally
from duo.benchmark.prove.text import ProvedText
from duo.models.demo import demo_pair

TARGET, DRAFT = map(str, demo_pair())
Run = Callable[..., tuple[int, str, str]]
SHORT = ("-n", 8, "--n-prompts", 2, "--slots", 2)
GUESSES = Guesses("draft model")


@pytest.fixture(autouse=True, scope="module")
def _short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as m:
        m.setattr(plans, "N_LONG", 200)
        yield


# ---- a pair


@pytest.fixture(scope="module")
def pair() -> Iterator[Duo]:
    with Duo(TARGET, DRAFT, n_ctx=2048, n_parallel=2, **EXACT) as d:
        yield d


@pytest.fixture(scope="module")
def proof(pair: Duo) -> Proof:
    """With the references, by plain decoding."""
    found = Proof()
    found.refer(PairWriter(pair, SMALL), reference_items(SMALL), NONE.name, How(logprobs=True))
    return found


@pytest.mark.parametrize("n", mostly_daily([1, 2], [2]))
@pytest.mark.parametrize("guesses", mostly_daily([NONE, NGRAMS, GUESSES], [GUESSES]), ids=lambda g: g.name)
def test_each_case_of_a_pair_has_the_targets_texts(guesses: Guesses, n: int, pair: Duo, proof: Proof) -> None:
    for case in of_pair(SMALL, guesses, n):
        tally = proof.measure(guesses.name, PairWriter(pair, SMALL), case)
        assert (tally.differences, tally.bad_arguments, tally.failures, tally.warnings) == ([], [], [], []), case.name
        assert tally.n_texts == len(case.items) > 0
    drafted = sum(t.n_drafted for t in proof.tallies if t.guesses == guesses.name)
    assert (drafted > 0) == (guesses is not NONE)


def test_another_model_is_found(proof: Proof) -> None:
    """The draft in the target's place: each text differs, and for greedy ones it is known by how much."""
    with Duo(DRAFT, n_ctx=2048, n_parallel=2, **EXACT) as d:
        writer = PairWriter(d, SMALL)
        for case in (*of_pair(SMALL, NONE, 1)[:1], *of_pair(SMALL, NONE, 2)):
            tally = proof.measure("another", writer, case)
            assert tally.differences, case.name
            for x in tally.differences:
                assert x.at is None or x.at < SMALL.n_tokens
                assert x.gap is None or x.gap > 0
                assert (x.gap is not None) == (x.item.kind in ("greedy", "long"))
    names = {t.case: t for t in proof.tallies if t.guesses == "another"}
    assert names["neighbours, sampled"].n_unrepeated == len(names["neighbours, sampled"].differences) > 0
    assert any(x.item.cancel_after for x in names["neighbours cancelled"].differences)


def test_a_state_that_is_not_restored_is_found(pair: Duo, proof: Proof, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second half then goes on from another prompt."""
    generate = pair.generate
    monkeypatch.setattr(pair, "load_state", lambda _state: None)
    monkeypatch.setattr(
        pair, "generate", lambda p, **o: generate(p[-3:] if isinstance(p, list) and len(p) > 9 else p, **o)
    )
    plan = ProofPlan(("Once upon a time there was a",), 6, 1, (1,))
    mine = Proof()
    mine.refer(PairWriter(pair, plan), plan.items("greedy"), "x", How(logprobs=True))
    tally = mine.measure("x", PairWriter(pair, plan), Case("halves", plan.items("greedy"), How(halved=True)))
    assert [x.at for x in tally.differences] and all((x.at or 0) >= 3 for x in tally.differences)


@pytest.mark.daily
@pytest.mark.full
def test_the_command_on_the_demo_pair(run: Run) -> None:
    code, out, err = run("prove", "-m", TARGET, "-md", DRAFT, "-n", 6, "--n-prompts", 1, "--slots", 2, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["complete"] and found["target"]["same_bits"]
    assert (found["total"]["n_different"], found["total"]["n_bad_arguments"], found["total"]["n_failed"]) == (0, 0, 0)
    assert found["total"]["n_texts"] == sum(c["n_texts"] for c in found["cases"]) > 100
    names = {c["guesses"] for c in found["cases"]}
    assert names == {"target alone", "n-grams", "draft model", "draft and n-grams"}
    for name in names - {"target alone"}:
        assert sum(c["draft_n"] for c in found["cases"] if c["guesses"] == name) > 0
    assert {c["at_once"] for c in found["cases"]} == {1, 2}


def test_ctrl_c_shows_what_was_counted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = Proof.measure

    def interrupted(self: Proof, *args: Any) -> Tally:
        if len(self.tallies) == 3:
            raise KeyboardInterrupt
        return measure(self, *args)

    monkeypatch.setattr(Proof, "measure", interrupted)
    code, out, _ = run("prove", "-m", TARGET, "-md", "none", *SHORT)
    assert code == 130 and "ended early after" in out and "first answers" in out and " 0 differ" in out


# ---- a server


def test_a_server_without_faults(run: Run) -> None:
    with faulty_server() as (url, server):
        code, out, err = run("prove", "--against", url, *SHORT, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["total"]["n_texts"] > 40 and found["total"]["n_different"] == 0 and found["notes"] == []
    assert next(c["case"] for c in found["cases"]) == "first answers"
    assert {c["case"] for c in found["cases"]} >= {c.name for c in of_server(SMALL)}
    # Only what any server knows is sent.
    known = {"prompt", "messages", "max_tokens", "temperature", "seed", "model", "stream", "stream_options", "tools",
             "tool_choice", "response_format", "logprobs"}  # fmt: skip
    assert all(body.keys() <= known for body in server.asked)
    assert {body["temperature"] for body in server.asked} == {0.0, 0.8}


def cases_of(out: str) -> dict[str, dict[str, Any]]:
    return {f"{c['case']} {c['at_once']}": c for c in json.loads(out)["cases"]}


def test_faults_that_company_brings_are_found(run: Run) -> None:
    with faulty_server("in_company", "arguments", "seeds") as (url, _):
        code, out, err = run("prove", "--against", url, *SHORT, "--json")
        assert (code, err) == (2, "")
        found = cases_of(out)
    alone = [c for c in found.values() if c["at_once"] == 1]
    assert sum(c["n_different"] + c["n_bad_arguments"] for c in alone) == 0 and len(alone) > 5
    near = [d for d in found["neighbours 2"]["differences"] if d["kind"] == "greedy"]
    assert near and all((d["token"], d["found"], d["near_tie"]) == (3, NEAR, True) for d in near)
    assert near[0]["gap"] == pytest.approx(GAP)
    assert found["neighbours, sampled 2"]["n_unrepeated"] > 0
    calls = found["neighbours, chats 2"]
    assert calls["n_bad_arguments"] > 0 and "Invalid JSON" in calls["bad_arguments"][0]
    assert json.loads(out)["total"]["n_near_ties"] >= len(near)


@pytest.mark.full
def test_the_table_names_what_was_found(run: Run) -> None:
    with faulty_server("in_company", "arguments", "streams", "logprobs") as (url, _):
        code, out, err = run("prove", "--against", f"mine={url}", *SHORT)
    assert (code, err) == (2, "")
    for words in ("near tie", "bad JSON", "unknown", "char ", "mine, streamed: greedy text 1, character",
                  "mine tells no log-probabilities: ", "more findings", "answers in JSON are bad"):  # fmt: skip
        assert words in out, words
    assert "with log-probabilities" not in out


@pytest.mark.daily
def test_what_a_server_lacks_is_left_out(run: Run) -> None:
    with faulty_server("tools", "schema") as (url, server):
        code, out, _ = run("prove", "--against", url, *SHORT, "--json")
    assert code == 0
    assert ["calls of tools were left out" in note for note in json.loads(out)["notes"]] == [True]
    forms = [b["response_format"]["type"] for b in server.asked if "response_format" in b]
    assert forms[:2] == ["json_schema", "json_object"] and "json_schema" not in forms[2:]


def test_a_server_that_fails_is_not_one_that_lacks_something(run: Run) -> None:
    """A 500 counts, and no other form of the schema is asked for."""
    with faulty_server("flaky") as (url, server):
        code, out, _ = run("prove", "--against", url, *SHORT, "--json")
    found = json.loads(out)
    first = next(c for c in found["cases"] if c["case"] == "first answers")
    assert (
        code == 2
        and first["n_failed"] == 2
        and all("status 500: " in why and "oops" in why for why in first["failures"])
    )
    assert not any("left out" in note for note in found["notes"])
    assert {b["response_format"]["type"] for b in server.asked if "response_format" in b} == {"json_schema"}


def test_a_refusal_after_an_answer_is_no_other_form() -> None:
    said: list[str] = []

    class Server(ServerTextWriter):
        def _chat(self, item: Item, how: How, form: Mapping[str, Any]) -> ProvedText:
            said.append(form["response_format"]["type"])
            if len(said) in (1, 3):
                raise BadAnswerError("no", 400)
            return ProvedText("{}")

    writer = Server(EndpointClient(parse_address("http://127.0.0.1:1", ""), None, 1.0), SMALL)
    item = Item("schema", 0)
    writer.write(item, How())
    with pytest.raises(BadAnswerError):
        writer.write(item, How())
    writer.write(item, How())
    assert said == ["json_schema", "json_object", "json_object", "json_object"]


@pytest.mark.daily
def test_a_case_whose_texts_are_all_refused_is_not_proved(run: Run) -> None:
    with faulty_server("full_house") as (url, _):
        code, out, err = run("prove", "--against", url, *SHORT)
    assert code == 1 and "not proved: " in err and "neighbours, streamed (2 at once)" in err and " 0 differ" in out


@pytest.mark.full
def test_texts_that_fail_and_texts_that_are_refused(run: Run) -> None:
    with faulty_server("fails", "full") as (url, server):
        code, out, _ = run("prove", "--against", url, *SHORT, "--json")
    assert {b["response_format"]["type"] for b in server.asked if "response_format" in b} == {"json_schema"}
    total = json.loads(out)["total"]
    assert code == 2 and total["n_failed"] > 0 and total["n_refused"] > 0 and total["n_different"] == 0
    assert any("oops" in why for c in json.loads(out)["cases"] for why in c["failures"])


def test_a_server_that_dies(run: Run) -> None:
    with faulty_server("dies") as (url, _):
        code, out, err = run("prove", "--against", url, *SHORT)
    assert code == 1 and err.count("\n") == 1 and "ended early" in out and "first answers" in out


def test_a_model_here_is_compared_with_a_server(run: Run) -> None:
    with faulty_server() as (url, _):
        code, out, _ = run("prove", "--against", url, "-m", TARGET, "--cpu-kernels", "stock", *SHORT, "--json")
    compared = cases_of(out)["beside the model here 1"]
    assert code == 2 and (compared["n_texts"], compared["n_different"]) == (2, 2)
    assert all(d["gap"] is not None for d in compared["differences"])
    assert any("equal texts are not promised here" in note for note in json.loads(out)["notes"])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--against", "x"], "--against 'x' is no address"),
        (["--against", "http://127.0.0.1:1"], "cannot be reached"),
        (["--against", "http://h", "-md", DRAFT], "has its own draft"),
        (["--against", "http://h", "-ngl", "3"], "-m"),
        (["--against", "http://h/v1/chat/completions", "-m", TARGET], "/v1/completions"),
        (["--timeout", "5"], "--against"),
        (["-n", "-1"], "-n -1"),
        (["--slots", "0"], "--slots"),
        (["--n-prompts", "1000"], "only 64"),
        (["--prompts", "nowhere.txt"], "cannot be read"),
        (["-m", "nowhere.gguf"], "nowhere.gguf"),
        (["--verify-host", "h:1"], "--verify-host"),
        (["-np", "3"], "-np is an option of duo run"),
    ],
)
def test_mistakes(args: list[str], words: str, run: Run) -> None:
    code, out, err = run("prove", *args)
    assert (code, out) == (1, "") and words in err and err.count("\n") == 1, err


# ---- parts


def test_lengths_take_turns_over_the_texts_of_a_run(pair: Duo, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[Any] = []
    monkeypatch.setattr(
        PairWriter, "_unstreamed", lambda _self, _item, _how, options: lengths.append(options["n_draft"])
    )
    writer = PairWriter(pair, SMALL)
    for _ in range(4):
        writer.write(ITEM, How("sync"))
    assert lengths == list(LENGTHS)
