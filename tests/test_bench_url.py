"""`duo bench --url`: servers, measured from outside."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_endpoint import DONE, GOOD, Reply, chunk, event, fake_endpoint
from served import Server, served
from sizes import mostly_daily

from duo.benchmark.bench.endpoint.address import parse_address
from duo.benchmark.bench.endpoint.client import EndpointClient

Run = Callable[..., tuple[int, str, str]]
SHORT = ("-n", 12, "--questions", 3, "--repetitions", 1, "--warm-up", 0)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as s:
        yield s


# ---- the command


def test_duo_beside_another_server(run: Run, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    with fake_endpoint() as f:
        code, out, err = run(
            "bench", "--url", f"duo={server.url}", "--url", f"chat={server.url}/v1/chat/completions", "--url",
            f"other={f.url}", *SHORT, "--slots", "1,3", "--json-file", file, "--raw", "--limit-ttft", 1e8,
        )  # fmt: skip
    assert (code, err) == (0, "")
    found = json.loads(file.read_text())
    names = ["duo plain", "duo", "chat plain", "chat", "other"]
    assert [(s["slots"], s["arm"]) for s in found["summaries"]] == [(n, name) for n in (1, 3) for name in names]
    for s in found["summaries"]:
        of_duo = s["server"] != "other"
        assert (s["n_answers"], s["n_refused"], s["refused_share"]) == (3, 0, 0)
        assert s["n_tokens"] == sum(x["served"]["n_tokens"] for r in found["rounds"] for x in r["records"]
                                    if (r["arm"], r["slots"]) == (s["arm"], s["slots"]))  # fmt: skip
        assert s["equal_share"] == (1 if of_duo else None)
        assert s["tokens_per_s"]["median"] > 0 and s["goodput"] > 0 and s["tpot_ms"]["median"] >= 0
        assert (s["to_first"] is None) == (s["server"] == "duo")
        assert (s["to_plain"] is not None) == of_duo
        assert s["ttft_ms"]["median"] <= s["ttft_p99_ms"]
    assert found["servers"]["other"] == {
        "url": f"{f.url}/v1/completions",
        "model": "fake-model",
        "owned_by": "somebody",
    }
    # Only what any server knows is sent to a stranger.
    assert all(a.keys() == {"prompt", "max_tokens", "temperature", "seed", "model", "stream", "stream_options"}
               for a in f.asked)  # fmt: skip
    assert all((a["temperature"], a["max_tokens"]) == (0, 12) for a in f.asked)
    assert re.search(r"other .*0% .* - ", out), out


def test_modes_of_duo_are_chosen(run: Run, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    code, _, err = run("bench", "--url", server.url, *SHORT, "--modes", "sync,async", "--sync-lengths", "2",
                       "--lengths", "auto,3", "--ignore-eos", "--json-file", file)  # fmt: skip
    assert (code, err) == (0, "")
    found = json.loads(file.read_text())["summaries"]
    assert [(s["mode"], s["n_draft"]) for s in found] == [("plain", None), ("sync", 2), ("async", "auto"), ("async", 3)]
    assert all((s["n_tokens"], s["equal_share"]) == (36, 1) for s in found)
    assert found[0]["acceptance"] is None and found[1]["acceptance"] > 0


def test_several_turns(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps({"question_id": 1, "category": "a", "turns": ["first", "second"]}))
    with fake_endpoint() as f:
        args = ("-f", file, "--repetitions", 1, "--warm-up", 0)
        assert run("bench", "--url", f.url, "--url", f"c={f.url}/v1/chat/completions", *args, "--top-k", 5)[0] == 0
    assert [a.get("prompt") for a in f.asked] == ["first", "firstone two three\nsecond", None, None]
    assert [len(a.get("messages", "")) for a in f.asked] == [0, 0, 1, 3]
    assert f.paths[2:] == ["/v1/chat/completions"] * 2
    assert all(a["top_k"] == 5 for a in f.asked)


def test_refused_requests_are_counted(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    with fake_endpoint(
        lambda n: Reply([b"{}"], 429 if n % 2 else 503, "application/json") if n < 2 else Reply(GOOD)
    ) as f:
        code, out, err = run("bench", "--url", f.url, "--questions", 8, "--repetitions", 1, "--warm-up", 0,
                             "--json-file", file, "--limit-tpot", 1e8)  # fmt: skip
    assert (code, err) == (0, "")
    (s,) = json.loads(file.read_text())["summaries"]
    assert (s["n_answers"], s["n_refused"], s["refused_share"], s["n_tokens"]) == (6, 2, 0.25, 30)
    assert "25%" in out


def test_a_full_duo_server_refuses(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    with served({"queue": 0}, n_parallel=1, delay=(20_000, 1)) as s:
        code, _, err = run("bench", "--url", s.url, *SHORT, "--slots", "3", "--modes", "plain", "--json-file", file)
    assert (code, err) == (0, "")
    alone, crowded = json.loads(file.read_text())["summaries"]
    assert alone["n_refused"] == 0 and alone["n_answers"] == 3
    assert crowded["n_refused"] > 0 and crowded["n_answers"] >= 1 and crowded["equal_share"] == 1


FAULTS: list[tuple[Reply, str]] = [
    (Reply(GOOD[:2], breaks=True), "broke off"),
    (Reply(GOOD[:2]), "ended a text in the middle"),
    (Reply([*GOOD[:4], DONE]), "--count-chunks"),
    (Reply([event(b"{no json")]), "not JSON"),
    (Reply([b"data: \xff\n\n"]), "no stream of events"),
    (Reply([chunk("a"), event({"error": {"message": "out of memory"}})]), "out of memory"),
    (Reply([b"<html>"], kind="text/html"), "does not stream"),
    (Reply([b'{"error": {"message": "no key geheim"}}'], 400, "application/json"), "no key ***"),
    (Reply([b"<html>oops"], 500, "text/html"), "status 500"),
    (Reply([b"{}"], 401, "application/json"), "wants another key"),
]


@pytest.mark.full
@pytest.mark.parametrize(("fault", "words"), mostly_daily(FAULTS, FAULTS[::3]), ids=[words for _, words in FAULTS])
def test_faults_are_one_sentence_and_keep_what_was_measured(
    fault: Reply, words: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUO_API_KEY", "geheim")
    file = tmp_path / "x.json"
    with fake_endpoint(lambda n: Reply(GOOD) if n < 3 else fault) as f:
        args = ("bench", "--url", f"it={f.url}", *SHORT, "--slots", "2")
        code, out, err = run(*args, "--json-file", file)
        assert code == 1
        assert err.startswith("duo: ") and err.count("\n") == 1 and words in err and "it" in err
        assert "geheim" not in out + err + file.read_text()
        found = json.loads(file.read_text())
        assert not found["complete"] and [s["slots"] for s in found["summaries"]] == [1]
        assert "ended early after" in out
        f.reply = lambda _n: fault
        code, out, err = run(*args)  # nothing was measured
        assert (code, out) == (1, "") and words in err


def test_a_server_that_is_silent(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        code, _, err = run("bench", "--url", f"http://127.0.0.1:{s.getsockname()[1]}", "--timeout", 0.2)
    assert code == 1 and "was silent for 0.2 s" in err


@pytest.mark.parametrize(
    ("models", "words"),
    [
        (Reply([b"nothing"], 404, "text/plain"), "status 404"),
        (Reply([b"<html>"], kind="text/html"), "does not list its models"),
        (Reply([b'{"data": []}'], kind="application/json"), "--url-model"),
        (Reply([b"{}"], 503, "application/json"), "is not ready"),
    ],
)
def test_servers_that_do_not_say_what_they_have(models: Reply, words: str, run: Run) -> None:
    with fake_endpoint(models=models) as f:
        code, _, err = run("bench", "--url", f.url)
    assert code == 1 and words in err and err.count("\n") == 1


def test_a_server_without_a_list_of_models(run: Run) -> None:
    with fake_endpoint(models=Reply([b"nothing"], 404, "text/plain")) as f:
        assert run("bench", "--url", f.url, *SHORT, "--url-model", "mine")[0] == 0
    assert {a["model"] for a in f.asked} == {"mine"}


def test_pieces_count_where_nothing_else_does(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    with fake_endpoint(lambda _n: Reply([*GOOD[:4], DONE])) as f:
        code, out, _ = run("bench", "--url", f.url, *SHORT, "--count-chunks", "--json-file", file)
    assert code == 0 and "its pieces of text were counted" in out
    assert json.loads(file.read_text())["summaries"][0]["n_tokens"] == 6


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--url", "http://127.0.0.1:1"], "cannot be reached"),
        (["--url", "x"], "no address"),
        (["--url", "http://h", "-m", "x.gguf"], "-m"),
        (["--url", "http://h", "-ngl", "3"], "leave it out"),
        (["--url", "http://h", "--csv", "x.csv"], "--csv"),
        (["--url", "http://h", "--synthetic", "a=0.8"], "--synthetic"),
        (["--url", "http://h", "-n", "-1"], "-n -1"),
        (["--url", "http://h", "--limit-ttft", "0"], "--limit-ttft"),
        (["--url", "http://h", "--slots", "0"], "--slots"),
        (["--url", "http://h", "--raw"], "--json-file"),
        (["--limit-ttft", "5"], "--url"),
        (["--url-model", "x"], "--url"),
    ],
)
def test_mistakes(args: list[str], words: str, run: Run) -> None:
    code, out, err = run("bench", *args)
    assert (code, out) == (1, "") and words in err and err.count("\n") == 1


def test_duos_models_are_known_by_their_owner(server: Server) -> None:
    client = EndpointClient(parse_address(server.url), None, 10)
    client.meet()
    client.close()
    assert client.is_duo and client.is_llama_cpp and client.model == "demo"
