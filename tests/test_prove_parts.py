"""The parts of `duo prove`: differences, forms, messages, prompts, counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from proofs import ITEM, SMALL

from duo import BadValueError, DuoError
from duo.benchmark.prove.cases import Case, How, reference_items
from duo.benchmark.prove.compare import difference
from duo.benchmark.prove.form import SCHEMA, fault
from duo.benchmark.prove.message import Message, text_of_choice
from duo.benchmark.prove.plan import Item, prompts_of
from duo.benchmark.prove.run import Proof
from duo.benchmark.prove.tally import Tally, counts, together
from duo.benchmark.prove.text import ProvedText, Step, TokenCandidate


def step(piece: str, token: int, *top: tuple[str, float, int]) -> Step:
    first = TokenCandidate(piece, -0.1, token)
    return Step(first, (first, *(TokenCandidate(p, lp, t, p == "END") for p, lp, t in top)))


RIGHT = ProvedText(
    "a b c", (1, 2, 3),
    (step("a", 1), step(" b", 2, (" x", -0.2, 9), ("END", -3.1, 7)), step(" c", 3, (" y", -5.0, 8))),
)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "cancelled", "expected"),
    [
        (ProvedText("a b c", (1, 2, 3)), None, None),
        (ProvedText("a b", (1, 2)), 2, None),
        (ProvedText(None, (1, 2, 3)), None, None),
        (ProvedText("a x c", (1, 9, 3)), None, (1, " b", " x", 0.1, False, True)),
        (ProvedText("a z c", (1, 5, 3)), None, (1, " b", "token 5", 3.0, True, False)),
        (ProvedText("a", (1,)), None, (1, " b", "END", 3.0, False, False)),
        (ProvedText("a b c d", (1, 2, 3, 4)), None, (3, "", "token 4", None, False, None)),
        (ProvedText("a x"), None, (1, " b", " x", 0.1, False, True)),
        (ProvedText("a b y"), None, (2, " c", " y", 4.9, False, False)),
        (ProvedText("a q"), None, (1, " b", "q", 3.0, True, False)),
        (ProvedText("a b"), None, (2, " c", "", None, False, None)),
        (ProvedText("a xyz"), None, (1, " b", "xyz", None, False, None)),  # the token may be longer than " x"
        (ProvedText("a x y"), None, (1, " b", " x", 0.1, False, True)),
        (ProvedText("a b"), 2, None),
        (ProvedText("a b d"), 3, (2, " c", "d", 4.9, True, False)),
    ],
)
def test_differences(found: ProvedText, cancelled: int | None, expected: tuple[Any, ...] | None) -> None:
    d = difference(ITEM._replace(cancel_after=cancelled), RIGHT, found)
    if d is None or expected is None:
        assert d is expected
        return
    assert (d.at, d.expected, d.actual, d.gap and round(d.gap, 3), d.is_least, d.is_near_tie) == expected


def test_the_worst_text_is_the_one_that_is_no_near_tie() -> None:
    t = Tally("x", "y", 1)
    for found in (ProvedText("a x c", (1, 9, 3)), ProvedText("a b y", (1, 2, 8)), RIGHT):
        t.add(ITEM, RIGHT, found)
    assert t.worst is not None and t.worst.at == 2
    assert (counts(together([t, t]))["n_texts"], counts(t)["n_different"], counts(t)["n_near_ties"]) == (6, 2, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"guests": 2, "name": "Miller", "day": "friday", "outside": true}', ""),
        ('{"guests": 2, "name": "Miller", "day": "friday", "outside": true', "Invalid JSON"),
        ('{"guests": 2, "name": "Miller", "day": "friday"}', "outside: Field required"),
        ('{"guests": "2", "name": "Miller", "day": "friday", "outside": true}', "guests: "),
        ('{"guests": 2, "name": "Miller", "day": "tuesday", "outside": true}', "day: "),
        ('{"guests": 2, "name": "Miller", "day": "friday", "outside": true, "x": 1}', "x: "),
        ("", "Invalid JSON"),
    ],
)
def test_the_form_of_a_booking(text: str, words: str) -> None:
    assert fault(text).startswith(words) and bool(fault(text)) == bool(words)
    assert SCHEMA["additionalProperties"] is False and len(SCHEMA["required"]) == 4


def test_a_message_is_the_same_whole_and_in_pieces() -> None:
    function = {"name": "f", "arguments": '{"a": 1}'}
    right = text_of_choice(
        {"message": {"content": "So: ", "tool_calls": [{"function": function}]}, "finish_reason": "stop"}
    )
    pieces = Message()
    for delta in ({"role": "assistant", "content": None}, {"content": "So"}, {"content": ": "},
                  {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": '{"a"'}}]},
                  {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}, {}):  # fmt: skip
        pieces.add({"delta": delta, "finish_reason": None})
    assert pieces.text == right == ProvedText('So: f({"a": 1})', arguments='{"a": 1}')
    for odd in ({"delta": 3}, {"delta": {"tool_calls": ["x"], "content": 5}}, {}):
        pieces.add(odd)
    assert pieces.text.text == right.text


def test_prompts(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text("one\n\n two \none\nthree")
    assert prompts_of(file, None) == ("one", "two", "three")
    assert prompts_of(file, 2) == ("one", "two") and prompts_of(None, 2)[1].startswith("The letter")
    many = prompts_of(file, 9)
    assert len(set(many)) == 9 and many[3] == "one\n\ntwo"
    with pytest.raises(BadValueError, match="only 9"):
        prompts_of(file, 10)
    file.write_text(" \n")
    with pytest.raises(BadValueError, match="has no prompt"):
        prompts_of(file, None)
    assert len(prompts_of(None, None)) == 8


def test_errors_of_a_writer_are_counted_and_chats_may_be_missing() -> None:
    class Writer:
        def write(self, item: Item, how: How) -> ProvedText:
            if item.kind == "call":
                raise BadValueError("no tools")
            if how.streamed:
                raise DuoError("broken")
            return ProvedText("text")

    proof = Proof()
    proof.refer(Writer(), reference_items(SMALL), "w", How())
    assert list(proof.notes) == ["calls of tools were left out: no tools"]
    tally = proof.measure("w", Writer(), Case("c", reference_items(SMALL), How(streamed=True)))
    assert (tally.n_texts, set(tally.failures), tally.is_clean) == (0, {"broken"}, False)
