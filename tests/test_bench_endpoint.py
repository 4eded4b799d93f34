"""Addresses, streams and keys of `duo bench --url`."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from fake_endpoint import fake_endpoint

from duo import DuoError
from duo.benchmark.bench.endpoint.address import EndpointAddress, parse_address, parse_addresses
from duo.benchmark.bench.endpoint.answer import BadStream, StreamedAnswer
from duo.benchmark.bench.endpoint.bad_answer import BadAnswerError
from duo.benchmark.bench.endpoint.client import EndpointClient, read_key
from duo.benchmark.bench.endpoint.events import EventReader

# ---- addresses


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("http://h:1", EndpointAddress("h:1", "http://h:1/v1", False)),
        ("x=http://h:1/v1/", EndpointAddress("x", "http://h:1/v1", False)),
        ("http://h/v1/chat/completions", EndpointAddress("h", "http://h/v1", True)),
        ("a b=https://h/llm/v1/completions", EndpointAddress("a b", "https://h/llm/v1", False)),
        ("http://[::1]:8080", EndpointAddress("[::1]:8080", "http://[::1]:8080/v1", False)),
    ],
)
def test_addresses(text: str, found: EndpointAddress) -> None:
    assert parse_address(text) == found


@pytest.mark.parametrize(
    "text", ["", "x", "ftp://h", "http://", "=http://h", "h:8080", "http://h:x", "http://h:99999999"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(DuoError, match="--url"):
        parse_address(text)


@pytest.mark.parametrize("text", ["http://me:geheim@h", "http://h?key=geheim", "x=http://me:geheim@h:x"])
def test_keys_in_addresses_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(DuoError, match="--api-key-file") as e:
        parse_address(text)
    assert "geheim" not in str(e.value)


def test_two_servers_with_one_name() -> None:
    with pytest.raises(DuoError, match="give each its own"):
        parse_addresses(["http://h:1", "http://h:1/v1"])


# ---- streams


@pytest.mark.parametrize("n", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_in_pieces_of_any_size(n: int, end: bytes) -> None:
    lines = [b"\xef\xbb\xbf: ping", b"", b"event: error", b"data:1", b"data: \xc3\xa42", b"id: 7", b"", b"",
             b"data:  3", b"", b"event: alone", b"", b"data: cut"]  # fmt: skip
    stream = end.join(lines)
    reader = EventReader()
    found = [e for i in range(0, len(stream), n) for e in reader.feed(stream[i : i + n])]
    assert found == [("error", "1\nä2"), ("", " 3")]


def test_the_role_of_a_chat_is_no_text() -> None:
    a = StreamedAnswer()
    deltas = [{"role": "assistant", "content": ""}, {"role": "assistant", "content": None},
              {"reasoning_content": "hm"}, {"content": "yes"}]  # fmt: skip
    for now, delta in enumerate(deltas):
        a.take("", json.dumps({"choices": [{"delta": delta, "finish_reason": None}]}), now)
    assert (a.text, a.first_at, a.last_at, a.n_chunks, a.is_whole) == ("hmyes", 2, 3, 2, False)
    a.take("", '{"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": null}', 4)
    a.take("", '{"choices": [], "usage": {"completion_tokens": 9}, "timings": {"draft_n": 4}}', 5)
    assert (a.last_at, a.is_whole, a.usage_tokens, a.timings) == (3, True, 9, {"draft_n": 4})


@pytest.mark.parametrize(
    ("name", "data"),
    [("", "no json"), ("", "[1]"), ("", '{"error": {"message": "out\\u001b[2J of"}}'), ("error", '{"message": "out"}')],
)
def test_bad_events(name: str, data: str) -> None:
    with pytest.raises(BadStream) as e:
        StreamedAnswer().take(name, data, 0)
    assert "\x1b" not in str(e.value)


def test_times_and_tokens_are_the_clients() -> None:
    with fake_endpoint() as f:
        client = EndpointClient(parse_address(f.url), "k", 10)
        client.meet()
        asked = client.ask({"prompt": "x"})
        client.close()
    assert (client.model, client.is_duo, client.is_llama_cpp) == ("fake-model", False, False)
    assert asked.answer is not None
    assert (asked.answer.text, asked.answer.usage_tokens, asked.answer.n_chunks) == ("one two three", 5, 2)
    assert asked.first_s is not None and asked.last_s is not None
    assert 0 < asked.first_s <= asked.last_s <= asked.whole_s
    assert f.keys == ["Bearer k"] * 2
    assert f.asked[0] == {
        "prompt": "x",
        "model": "fake-model",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUO_API_KEY", "of-environment")
    file = tmp_path / "key"
    file.write_text(" of-file \nanother\n")
    assert (read_key(None), read_key(str(file))) == ("of-environment", "of-file")
    for bad in ("", "\n", "two geheim", "gehéim"):
        file.write_text(bad)
        with pytest.raises(DuoError, match="holds no key") as e:
            read_key(str(file))
        assert "geh" not in str(e.value)
    with pytest.raises(DuoError, match="cannot be read"):
        read_key(str(tmp_path / "none"))


def test_an_error_of_a_server_can_be_copied() -> None:
    copy = pickle.loads(pickle.dumps(BadAnswerError("h answers 501", 501)))
    assert (str(copy), copy.status, copy.lacks) == ("h answers 501", 501, True)
