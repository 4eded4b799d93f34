"""`duo serve --models-dir`: a process for each model that is asked for, and requests go to the one that they name."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import EXACT, HANG_S
from routed import BODY, LONG, TARGET, Served, models_folder, routed
from served import parsed
from waits import wait_until

from duo import Duo

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models_folder(tmp_path_factory)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    with routed(folder) as s:
        yield s


@pytest.fixture(scope="module")
def right() -> str:
    with Duo(**EXACT) as d:  # not what a race would choose: near ties may break differently
        return d.generate(BODY["prompt"], max_tokens=12, temperature=0).text


def test_a_router_tells_what_it_is(server: Served) -> None:
    found = server.get("/props").json()
    assert (found["role"], found["max_instances"], found["models_autoload"]) == ("router", 2, True)
    assert found["default_generation_settings"]["n_ctx"] == 0 and found["model_alias"] == "duo"


def test_requests_go_to_the_model_that_they_name(server: Served, right: str) -> None:
    for name in ("alone", "pair"):
        answer = server.post("/completion", {**BODY, "model": name}).json()
        assert (answer["content"], answer["model"]) == (right, name)
        props = server.get(f"/props?model={name}").json()
        assert props["duo"]["speculates"] is (name == "pair") and props["model_alias"] == name
    assert server.post("/completion", {**BODY, "model": "small"}).json()["content"] != right
    stream = server.post("/completion", {**BODY, "model": "pair", "stream": True})
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert "".join(e["content"] for _, e in parsed(stream.text)) == right
    asked = {"X-Request-Id": "abc", "Origin": "http://localhost"}
    headers = server.post("/completion", {**BODY, "model": "pair"}, headers=asked).headers
    for name in ("date", "x-request-id", "vary", "content-type"):
        assert len(headers.get_list(name, split_commas=name != "date")) == 1, headers
    chat = {"model": "pair", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    assert server.post("/v1/chat/completions", chat).json()["choices"][0]["message"]["content"]


def test_the_model_that_was_used_longest_ago_makes_room(server: Served) -> None:
    for name in ("pair", "small", "pair"):  # two at a time, which are there from the test above
        server.post("/completion", {**BODY, "model": name})
    assert server.post("/models/load", {"model": "alone"}).json() == {"success": True}
    assert server.states() == {"alone": "loaded", "broken": "unloaded", "pair": "loaded", "small": "unloaded"}
    listed = {m["id"]: m for m in server.get("/models").json()["data"]}
    assert listed["alone"]["meta"]["n_ctx"] == 4096 and "meta" not in listed["small"]
    assert "-c" in listed["alone"]["status"]["args"]


def test_a_text_whose_model_dies_ends_and_no_other_model_dies_with_it(server: Served, right: str) -> None:
    server.post("/completion", {**BODY, "model": "pair"})
    other = server.pid("pair")
    body = {**BODY, **LONG, "model": "alone"}
    with httpx.stream("POST", server.url + "/completion", json=body, timeout=HANG_S) as answer:
        lines = answer.iter_lines()
        next(lines)
        os.kill(server.pid("alone"), signal.SIGKILL)
        rest = [line for line in lines if line]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == 502
    assert not any(json.loads(line.removeprefix("data: ")).get("stop") for line in rest if line.startswith("data: {"))
    assert server.post("/completion", {**BODY, "model": "alone"}).json()["content"] == right
    os.kill(server.pid("alone"), signal.SIGKILL)  # while it has no text
    assert server.post("/completion", {**BODY, "model": "alone"}).json()["content"] == right
    assert server.pid("pair") == other


@pytest.mark.daily
def test_many_that_want_one_model_load_it_once(server: Served, right: str) -> None:
    server.post("/models/unload", {"model": "alone"})
    n = server.router.fleet.n_started
    found: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(server.post("/completion", {**BODY, "model": "alone"}).json()["content"])
        )
        for _ in range(5)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join(HANG_S)
    assert found == [right] * 5 and server.router.fleet.n_started == n + 1


def test_a_client_that_goes_frees_its_place(server: Served) -> None:
    body = {**BODY, **LONG, "model": "alone"}
    with httpx.stream("POST", server.url + "/completion", json=body, timeout=HANG_S) as answer:
        next(answer.iter_lines())
    until = time.monotonic() + HANG_S
    while any(s["is_processing"] for s in server.get("/slots?model=alone").json()):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/completion", {**BODY, "model": "none"}, 404, "there is no model 'none' here; choose from alone, broken"),
        ("/completion", {**BODY, "model": 5}, 404, "there is no model '5' here"),
        ("/models/load", {}, 404, "there is no model"),
        ("/completion", {**BODY, "model": "broken"}, 503, "the model broken could not be loaded"),
        ("/completion", {"model": "alone", "prompt": 3}, 400, "prompt"),
        ("/nothing", {"model": "alone"}, 404, "there is no route /nothing"),
    ],
)
def test_mistakes_are_sentences(server: Served, path: str, body: Any, status: int, words: str) -> None:
    answer = server.post(path, body)
    assert answer.status_code == status and words in answer.json()["error"]["message"], answer.text
    if body.get("model") == "broken":
        assert server.get("/v1/models").json()["data"][1]["status"]["failed"]


def test_no_model_makes_room_for_a_broken_file(server: Served) -> None:
    for name in ("pair", "alone"):
        server.post("/completion", {**BODY, "model": name})
    for path, body in (("/completion", BODY), ("/models/load", {})):
        answer = server.post(path, {**body, "model": "broken"})
        assert answer.status_code == 503 and "the model broken could not be loaded: " in answer.text
        assert "broken.gguf" in answer.text
    assert server.states() == {"alone": "loaded", "broken": "unloaded", "pair": "loaded", "small": "unloaded"}


@pytest.mark.daily  # others load one and unload one, too
def test_models_are_loaded_and_unloaded_by_name(server: Served) -> None:
    server.post("/models/unload", {"model": "small"})
    assert server.post("/models/load", {"model": "small"}).json() == {"success": True}
    assert server.states()["small"] == "loaded"
    assert server.post("/models/unload", {"model": "small"}).json() == {"success": True}
    assert server.states()["small"] == "unloaded"
    assert server.post("/models/unload", {"model": "small"}).json() == {"success": True}


def test_who_names_no_model(folder: Path, tmp_path: Path, right: str) -> None:
    with routed(folder) as s:
        answer = s.post("/completion", BODY)
        assert answer.status_code == 400 and "model name is missing" in answer.json()["error"]["message"]
        assert s.get("/health").json() == {"status": "ok"} and "duo_ready 1.0" in s.get("/metrics").text
    (tmp_path / "only.gguf").symlink_to(TARGET)
    with routed(tmp_path) as s:
        unsaid = {"User-Agent": "Mozilla/5.0", "Referer": "http://evil.example/"}
        for headers in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Origin": "https://evil.example"},
            unsaid,
        ):  # a picture, a page
            answer = httpx.get(f"{s.url}/props?model=only&autoload=1", headers=headers)
            assert answer.status_code == 400 and s.states() == {"only": "unloaded"}
        assert s.post("/completion", BODY).json()["content"] == right
        for _ in range(2):
            assert s.post("/models/unload", {"model": "only"}).json() == {"success": True}
            assert s.states() == {"only": "unloaded"}


def test_without_autoload_somebody_else_loads_and_keys_are_asked_for(folder: Path, right: str) -> None:
    with routed(folder, autoload=False, api_key="secret") as s:
        body = {**BODY, "model": "alone"}
        assert s.post("/completion", body).status_code == 401
        key = {"Authorization": "Bearer secret"}
        answer = s.post("/completion", body, headers=key)
        assert answer.status_code == 400 and "POST /models/load" in answer.json()["error"]["message"]
        assert s.post("/completion?autoload=true", body, headers=key).json()["content"] == right
        pid = s.pid("alone")
    with pytest.raises(ProcessLookupError):  # its children end with it
        os.kill(pid, 0)


def test_files_are_for_everybody_and_models_for_those_with_the_key(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "style.css").write_text("body {}")
    (tmp_path / "own" / "index.html").write_text("a page")
    key = {"Authorization": "Bearer secret"}
    queries = ("", "?model=alone", "?model=alone&autoload=1")
    with routed(folder, path=str(tmp_path / "own"), api_key="secret") as s:
        for path in ("/", "/index.html"):
            for query in queries:
                assert s.get(path + query).text == "a page"
                assert httpx.head(s.url + path + query).status_code == 200
                assert s.post(path + query, {"model": "alone"}).status_code == 401
        for path in ("/style.css", "//", "//index.html", "/%2e", "/ui/page.js", "/slots", "/lora-adapters", "/v1"):
            for query in queries:
                assert s.get(path + query).status_code in (400, 401), path
        assert httpx.get(s.url + "/style.css", headers=key).text == "body {}"
        (tmp_path / "own" / "index.html").unlink()
        for path in ("/", "/index.html"):
            assert [s.get(path + query).status_code for query in queries] == [404] * len(queries)
        unloaded = httpx.get(s.url + "/lora-adapters?model=alone&autoload=0", headers=key)
        assert "is not loaded" in unloaded.json()["error"]["message"]
        assert set(httpx.get(s.url + "/v1/models", headers=key).json()["data"][0]["status"]) == {"value"}
        assert not s.router.fleet.n_started


@pytest.mark.daily
def test_an_answer_that_is_being_written_is_written_to_its_end(folder: Path) -> None:
    with routed(folder) as s:
        s.post("/models/load", {"model": "alone"})
        found: list[httpx.Response] = []
        body = {**BODY, **LONG, "stream": False, "n_predict": 800, "model": "alone"}
        asking = threading.Thread(target=lambda: found.append(s.post("/completion", body)))
        asking.start()
        wait_until(lambda: s.member("alone").n_inside)
        s.serving.end()
        asking.join(HANG_S)
    assert found[0].json()["tokens_predicted"] == 800


@pytest.mark.daily
def test_whoever_waits_for_a_load_may_go(server: Served, right: str) -> None:
    asked = {**BODY, "model": "alone"}
    server.post("/models/unload", {"model": "alone"})
    with suppress(httpx.TimeoutException):
        httpx.post(server.url + "/completion", json=asked, timeout=0.3)
    assert server.post("/completion", asked).json()["content"] == right


@pytest.mark.daily
def test_a_model_that_is_unloaded_while_it_loads(server: Served, right: str) -> None:
    asked = {**BODY, "model": "alone"}
    for begun in (lambda m: m.loading, lambda m: m.child is not None and m.child.pid):
        server.post("/models/unload", {"model": "alone"})
        found: list[httpx.Response] = []
        asking = threading.Thread(target=lambda f=found: f.append(server.post("/completion", asked)))
        asking.start()
        wait_until(lambda b=begun: b(server.member("alone")))
        server.post("/models/unload", {"model": "alone"})
        asking.join(HANG_S)
        assert found[0].status_code == 503 and "the model alone was unloaded" in found[0].text, found[0].text
        assert server.states()["alone"] == "unloaded" and not server.member("alone").failed
        assert server.post("/completion", asked).json()["content"] == right


@pytest.mark.daily
def test_a_model_that_is_asked_for_while_it_makes_room(folder: Path) -> None:
    with routed(folder, n_most=1) as s:
        s.post("/models/load", {"model": "small"})
        found: dict[str, int] = {}

        def ask(name: str) -> None:
            found[name] = s.post("/completion", {**BODY, "model": name}).status_code

        threads = [threading.Thread(target=ask, args=(name,)) for name in ("alone", "small")]
        threads[0].start()
        wait_until(lambda: s.member("small").child is None)
        threads[1].start()
        for t in threads:
            t.join(HANG_S)
            assert not t.is_alive()
        assert found["alone"] == 200 and found["small"] in (200, 503)
        assert s.post("/completion", {**BODY, "model": "small"}).status_code == 200
