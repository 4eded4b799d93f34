"""Vectors and scores from the server: OpenAI's, llama-server's and Jina's answers, who waits, and the end."""

import base64
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from bert_models import alike
from conftest import HANG_S
from late import Late
from served import Server, one_answer, raw, request_for, served
from test_embeddings import TARGET, TEXTS, encoder, reranker
from waits import wait_until

openai = Late("openai")

__all__ = ["encoder", "reranker"]  # fixtures


@pytest.fixture(scope="module")
def server(encoder: str) -> Iterator[Server]:
    with served({"embedding": True}, model=encoder, embedding=True, n_ctx=None) as s:
        yield s


def test_the_server_answers_as_openai_and_llama_server(server: Server) -> None:
    want = server.duo.embed(TEXTS, normalize=True)
    answer = server.post("/v1/embeddings", {"input": TEXTS}).json()
    assert alike([x["embedding"] for x in answer["data"]], want) and answer["model"] == "demo"
    packed = server.post("/v1/embeddings", {"input": TEXTS[0], "encoding_format": "base64"}).json()["data"][0]
    assert alike(np.frombuffer(base64.b64decode(packed["embedding"]), "<f4"), want[0])
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    found = client.embeddings.create(model="any", input=TEXTS)
    assert alike([x.embedding for x in found.data], want) and found.usage.prompt_tokens > 0
    for path in ("/embedding", "/embeddings"):
        native = server.post(path, {"content": TEXTS[0], "embd_normalize": -1}).json()
        assert native[0]["index"] == 0 and alike(native[0]["embedding"][0], server.duo.embed(TEXTS[0]))
    tokens = server.duo.tokenize(TEXTS[0])
    assert alike(server.post("/v1/embeddings", {"input": tokens}).json()["data"][0]["embedding"], want[0])
    assert server.post("/tokenize", {"content": "a"}).status_code == 200
    assert server.get("/v1/models").status_code == server.get("/props").status_code == 200


def test_shorter_vectors(server: Server) -> None:
    want = np.array(server.duo.embed(TEXTS, normalize=True))[:, :7]
    answer = server.post("/v1/embeddings", {"input": TEXTS, "dimensions": 7}).json()
    found = np.array([x["embedding"] for x in answer["data"]])
    assert np.allclose(found, want / np.linalg.norm(want, axis=1, keepdims=True), atol=1e-4)


def test_vectors_of_tokens_are_not_normalized(encoder: str) -> None:
    with served({"embedding": True}, model=encoder, embedding=True, pooling_type="none", n_ctx=None) as s:
        for asked in ({}, {"embd_normalize": 2}):
            rows = s.post("/embedding", {"content": TEXTS[0], **asked}).json()[0]["embedding"]
            assert alike(rows, s.duo.embed(TEXTS[0])) and abs(np.linalg.norm(rows[0]) - 1) > 0.01


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/embeddings", {}, 400, "no input"),
        ("/v1/embeddings", {"input": []}, 400, "empty list"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}, 400, "it is float or base64"),
        ("/v1/embeddings", {"input": "a " * 500}, 400, "is too large for a pass"),
        ("/v1/embeddings", {"input": "a", "embd_normalize": -7}, 400, "give -1 to 1000"),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, 400, "dimensions is 0; the vectors of this model have"),
        ("/v1/embeddings", {"input": "a", "dimensions": 10**6}, 400, "dimensions is 1000000; "),
        ("/v1/embeddings", {"input": ["a"] * 2049}, 400, "send at most 2048 at a time"),
        ("/v1/embeddings", {"input": [[99999]]}, 400, "token ids"),
        ("/v1/embeddings", {"input": {"content": 5}}, 400, "something other than texts"),
        ("/v1/embeddings", {"input": {"content": None}}, 400, "something other than texts"),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}, 501, "--rerank"),
        ("/completion", {"prompt": "a"}, 501, "started for embeddings"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, 501, "started for embeddings"),
    ],
)
def test_mistakes_are_sentences(server: Server, path: str, body: Any, status: int, words: str) -> None:
    answer = server.post(path, body)
    assert answer.status_code == status and words in answer.json()["error"]["message"]


def test_the_server_ranks(reranker: str) -> None:
    with served({"rerank": True}, model=reranker, embedding=True, pooling_type="rank", n_ctx=None) as s:
        scores = s.duo.rerank("a king", TEXTS)
        order = sorted(range(len(TEXTS)), key=lambda i: -scores[i])
        for path in ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking"):
            answer = s.post(path, {"query": "a king", "documents": TEXTS}).json()
            assert [r["index"] for r in answer["results"]] == order
            assert [r["relevance_score"] for r in answer["results"]] == pytest.approx(
                [scores[i] for i in order], rel=1e-3
            )
        best = s.post("/rerank", {"query": "a king", "texts": TEXTS, "return_text": True, "top_n": 2}).json()
        assert best == [{"index": i, "score": pytest.approx(scores[i], rel=1e-3), "text": TEXTS[i]} for i in order[:2]]
        for body, words in (({"documents": TEXTS}, "a query and documents"), ({"query": "a"}, "a query and documents"),
                            ({"query": "a", "documents": TEXTS, "top_n": 0}, "top_n is 0")):  # fmt: skip
            assert words in s.post("/rerank", body).json()["error"]["message"]


def test_what_is_read_for_vectors_is_counted(server: Server) -> None:
    def n(name: str) -> float:
        line = next(x for x in server.get("/metrics").text.splitlines() if x.startswith(f"duo_{name}_total "))
        return float(line.split()[1])

    before = n("prompt_tokens"), n("passes"), n("prompt_seconds")
    used = server.post("/v1/embeddings", {"input": TEXTS}).json()["usage"]["prompt_tokens"]
    assert n("prompt_tokens") == before[0] + used and n("passes") == before[1] + len(TEXTS)
    assert n("prompt_seconds") > before[2] and n("generated_tokens") == 0


def test_vectors_of_clients_that_have_gone_are_not_computed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Any] = []
    go_on = threading.Event()
    vectors = server.duo.vectors

    def slow(texts: Any, norm: int) -> Any:
        computed.append(texts)
        assert go_on.wait(HANG_S)
        return vectors(texts, norm)

    monkeypatch.setattr(server.duo, "vectors", slow)
    request = request_for("/v1/embeddings", {"input": TEXTS})
    inside = server.service.admission
    with ExitStack() as stack:
        stack.callback(go_on.set)
        first = stack.enter_context(raw(server, request))
        wait_until(lambda: computed)
        others = [raw(server, request) for _ in range(3)]
        wait_until(lambda: inside.n_inside == 4)
        for mistake in ({"input": "a", "encoding_format": "hex"}, {}):  # which need no model
            assert server.post("/v1/embeddings", mistake).status_code == 400
        for other in others:
            other.close()
        wait_until(lambda: inside.n_inside == 1)
        waiting = threading.Thread(target=server.post, args=("/v1/embeddings", {"input": "a"}))
        waiting.start()
        wait_until(lambda: inside.n_inside == 2)
        go_on.set()
        assert one_answer(first).startswith(b"HTTP/1.1 200")
        waiting.join(HANG_S)
    assert len(computed) == 2


def test_a_long_request_lets_others_in_and_ends_with_its_client(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []  # texts of each pass
    may_go = threading.Semaphore(0)
    vectors = server.duo.vectors

    def one_pass(texts: Any, norm: int) -> Any:
        computed.append(len(texts))
        assert may_go.acquire(timeout=HANG_S)
        return vectors(texts, norm)

    monkeypatch.setattr(server.duo, "vectors", one_pass)
    n = server.duo.embedder.n_most
    inside = server.service.admission
    with ExitStack() as stack:
        stack.callback(may_go.release, 10)
        long = stack.enter_context(raw(server, request_for("/v1/embeddings", {"input": [[5] * n] * 4})))
        wait_until(lambda: computed == [1])
        short = stack.enter_context(raw(server, request_for("/v1/embeddings", {"input": [[5], [6]]})))
        wait_until(lambda: inside.n_inside == 2)
        may_go.release(2)
        assert one_answer(short).startswith(b"HTTP/1.1 200")
        wait_until(lambda: computed == [1, 2, 1])  # the long one's second pass
        long.close()
        wait_until(lambda: inside.n_inside == 0)
        may_go.release(10)
        assert server.post("/v1/embeddings", {"input": [[5]] * 3}).status_code == 200
    assert computed == [1, 2, 1, 3]


def test_a_server_for_texts_says_what_to_start() -> None:
    with served() as s:
        for path in ("/embedding", "/v1/embeddings", "/v1/rerank"):
            answer = s.post(path, {"input": "a", "query": "a", "documents": ["b"]})
            assert answer.status_code == 501 and "--embedding or --rerank" in answer.json()["error"]["message"]


def test_a_server_that_ends_does_not_wait_for_vectors() -> None:
    n = 6  # one is computed, the others wait
    with served({"embedding": True, "drain": 0.2}, model=TARGET, embedding=True, pooling_type=1) as s:
        found: list[Any] = []
        body = {"input": ["a king and his daughter " * 80] * 300}  # many seconds
        asking = [threading.Thread(target=lambda: found.append(s.post("/v1/embeddings", body))) for _ in range(n)]
        for t in asking:
            t.start()
        wait_until(lambda: s.service.admission.n_inside == n, found)
        assert s.post("/tokenize", {"content": "a"}).status_code == 200 and not found  # others do not wait for vectors
    for t in asking:
        t.join(HANG_S)
    assert not any(t.is_alive() for t in asking) and found
    for r in found:
        assert (r.status_code, r.headers.get("Retry-After")) == (503, "5"), r.text
        assert r.json()["error"]["message"] == "the server is shutting down"
