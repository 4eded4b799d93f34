"""Texts as vectors: those of llama-cpp-python for the same file."""

import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llama_cpp
import numpy as np
import pytest
from bert_models import N_CTX, N_EMBD, alike, bert
from conftest import HANG_S
from late import Late

from duo import BadValueError, CancelledError, Duo, DuoError
from duo.generation.embeddings import normalized
from duo.models.demo import demo_pair

openai = Late("openai")

TEXTS = ["a king and his daughter", "the sea", "x", "a king and his son went to the sea"]
TARGET, DRAFT = map(str, demo_pair())
CLS, SEP = 2, 3


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(bert(tmp_path_factory.mktemp("bert") / "encoder.gguf"))


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(bert(tmp_path_factory.mktemp("bert") / "reranker.gguf", reranks=True))


@pytest.mark.parametrize("pooling", [-1, 0, 1, 2, 3])
def test_vectors_are_llama_cpps(encoder: str, pooling: int) -> None:
    with Duo(encoder, embedding=True, pooling_type=pooling) as d:
        mine, n = d.embed(TEXTS, return_count=True)
        one = d.embed(TEXTS[0], normalize=True)
        assert d.pooling_type() == (2 if pooling < 0 else pooling)
    theirs = llama_cpp.Llama(encoder, embedding=True, pooling_type=pooling, n_ctx=N_CTX, verbose=False)
    # One by one: without pooling, llama-cpp-python's answers for several texts are not those for each of them.
    want = [theirs.embed(t) for t in TEXTS]
    assert n == theirs.embed(TEXTS, return_count=True)[1]
    for a, b in zip(mine, want, strict=True):
        assert np.shape(a) == np.shape(b) and alike(a, b)
    assert alike(one, theirs.embed(TEXTS[0], normalize=True)) and np.shape(one)[-1] == N_EMBD


def test_a_decoders_vectors_are_llama_cpps() -> None:
    with Duo(TARGET, embedding=True, pooling_type=1) as d:
        mine = d.embed(TEXTS)
        assert alike(d.create_embedding(TEXTS[0])["data"][0]["embedding"], mine[0])
    theirs = llama_cpp.Llama(TARGET, embedding=True, pooling_type=1, n_ctx=512, verbose=False)
    assert alike(mine, theirs.embed(TEXTS))


def test_many_texts_are_as_one_by_one(encoder: str) -> None:
    texts = [" ".join("abcdefgh"[: 1 + i % 8]) for i in range(200)]
    with Duo(encoder, embedding=True) as d:
        assert alike(d.embed(texts), [d.embed(t) for t in texts])
        found: list[Any] = [None] * 8
        threads = [threading.Thread(target=lambda i=i: found.__setitem__(i, d.embed(texts[i]))) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(HANG_S)
        assert alike(found, d.embed(texts[:8]))


def test_a_context_may_be_smaller_than_a_pass_of_many_texts(encoder: str) -> None:
    with Duo(encoder, embedding=True) as large, Duo(encoder, embedding=True, n_ctx=32, n_batch=32, n_ubatch=32) as d:
        assert d.embedder.n_most == 32  # fewer than the texts that a larger pass may have
        assert all(alike(a, b) for a, b in zip(d.embed(TEXTS * 20), large.embed(TEXTS * 20), strict=True))


def test_openais_answer(encoder: str) -> None:
    with Duo(encoder, embedding=True) as d:
        answer = d.create_embedding(TEXTS)
        assert [x["index"] for x in answer["data"]] == [0, 1, 2, 3] and answer["object"] == "list"
        assert answer["usage"]["prompt_tokens"] == sum(len(d.tokenize(t)) for t in TEXTS)


def test_long_texts_are_cut_or_refused(encoder: str) -> None:
    long = "a " * 500
    with Duo(encoder, embedding=True, n_batch=64) as d:
        assert alike(d.embed(long), d.vectors([d.tokenize(long)[:64]], -1)[0][0])
        with pytest.raises(BadValueError, match="a text of 502 tokens is too large for a pass; give 1 to 64"):
            d.embed(long, truncate=False)
        with pytest.raises(BadValueError, match="a text has no tokens"):
            d.vectors([[]])
        with pytest.raises(BadValueError, match="outside the vocabulary"):
            d.vectors([[1 << 20]])


def unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=-1)[:, None]


@pytest.mark.parametrize(
    ("norm", "size"),
    [
        (0, lambda x: abs(x).max(-1) / 32760),
        (1, lambda x: abs(x).sum(-1)),
        (2, lambda x: np.linalg.norm(x, axis=-1)),
        (3, lambda x: (abs(x) ** 3).sum(-1) ** (1 / 3)),
    ],
)
def test_norms(encoder: str, norm: int, size: Callable[[Any], Any]) -> None:
    with Duo(encoder, embedding=True) as d:
        tokens = [d.tokenize(t) for t in TEXTS]
        raw, found = (np.concatenate(d.vectors(tokens, n)) for n in (-1, norm))
    assert np.allclose(size(found), 1, rtol=1e-4) and alike(unit(found), unit(raw))


def test_scores_of_documents(reranker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Duo(reranker, embedding=True, pooling_type="rank") as d:
        scores = d.rerank("a king", TEXTS)
        assert len(set(scores)) == len(TEXTS)
        a, b = d.tokenize("a", False), d.tokenize("b", False)
        assert d.rank_tokens("a", "b") == [CLS, *a, SEP, SEP, *b, SEP]  # the file adds EOS and SEP, which are one token
        template = SimpleNamespace(rerank_template="{query}: {document}")
        monkeypatch.setattr(Duo, "embedder", template)
        assert d.rank_tokens("a {document}", "b {query}") == d.tokenize("a {document}: b {query}", False, True)
        monkeypatch.undo()
        theirs = llama_cpp.Llama(reranker, embedding=True, pooling_type=4, n_ctx=N_CTX, verbose=False)
        for text, score in zip(TEXTS, scores, strict=True):
            tokens = d.rank_tokens("a king", text)
            theirs._batch.reset()
            theirs._batch.add_sequence(tokens, 0, True)
            theirs._ctx.kv_cache_clear()
            theirs._ctx.decode(theirs._batch)
            want = llama_cpp.llama_get_embeddings_seq(theirs._ctx.ctx, 0)[0]
            assert score == pytest.approx(want, abs=0.02 * max(1.0, abs(want)))


def test_what_does_not_go_together(encoder: str) -> None:
    with Duo(encoder, embedding=True) as d:
        with pytest.raises(BadValueError, match="cannot write"):
            d.generate("a king")
        with pytest.raises(BadValueError, match="scores need a model for reranking"):
            d.rerank("a", ["b"])
    with pytest.raises(DuoError, match="closed"):
        d.embed("a")
    with Duo() as d, pytest.raises(BadValueError, match="load it with embedding=True"):
        d.embed("a")
    with pytest.raises(BadValueError, match="with embedding nothing is written, so a draft has no use"):
        Duo(TARGET, DRAFT, embedding=True)
    with pytest.raises(BadValueError, match="pooling_type is 7; choose from none, mean, cls, last, rank"):
        Duo(encoder, embedding=True, pooling_type=7)


# ---- the server


def test_threads_are_not_placed(encoder: str, caplog: pytest.LogCaptureFixture) -> None:
    with Duo(encoder, embedding=True, prio_batch=0):
        assert "not set for embeddings" in caplog.text


def test_a_damaged_or_unfit_file_is_a_sentence(encoder: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(Path(encoder).read_bytes()[:-4000])
    with pytest.raises(DuoError, match=r"bad\.gguf"):
        Duo(str(bad), embedding=True)
    unfit = str(bert(tmp_path / "none.gguf", separator="nothing"))
    words = r"the vocabulary of .*none\.gguf has no token for a part of the text"
    with Duo(unfit, embedding=True) as d, pytest.raises(BadValueError, match=words):
        d.embed("a king")


def test_closing_ends_what_is_computed() -> None:
    d = Duo(TARGET, embedding=True, pooling_type=1)
    texts = [d.tokenize("a king and his daughter " * 80)] * 4000  # minutes
    d.vectors(texts[:1])
    found: list[Any] = []

    def read() -> None:
        try:
            found.append(d.vectors(texts))
        except DuoError as e:
            found.append(e)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.2)
    d.close()
    reader.join(HANG_S)
    assert isinstance(found[0], CancelledError) and not reader.is_alive()


def test_closing_frees_the_model_for_vectors() -> None:
    d = Duo(TARGET, embedding=True, pooling_type=1)
    freed = weakref.ref(d.embedder)
    d.close()
    assert freed() is None
    with pytest.raises(CancelledError, match="closed"):
        d.embed("a king")


def test_any_norm_of_any_vector() -> None:
    rows = np.array([[3e4, -1e4, 2.0], [1e-30, 0.0, 0.0], [0.0, 0.0, 0.0]], np.float32)
    for norm in (0, 1, 2, 1000):
        found = normalized(rows, norm)
        assert np.isfinite(found).all() and not found[2].any()
        assert np.abs(found[:2]).max(1) == pytest.approx(32760 if norm == 0 else 1.0, rel=0.3)
