"""Heads of requests whose end a proxy may see elsewhere, and what is no request."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from served import Server, all_of, one_answer, raw, served


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served({"header_timeout": 600.0, "body_timeout": 600.0}) as s:  # clients of a busy machine are slow, too
        yield s


@pytest.fixture(scope="module")
def keyed() -> Iterator[Server]:
    with served({"api_key": "k", "host": "127.0.0.1", "allowed_hosts": "duo"}) as s:
        yield s


@pytest.mark.parametrize(
    "head",
    [
        b"POST /completion HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /completion HTTP/1.1\r\nHost: evil.example\r\n",
        b"POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: wrong\r\n",
        b"OPTIONS /completion HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
        b"Access-Control-Request-Method: POST\r\n",
    ],
)
def test_a_request_whose_end_is_in_doubt_is_the_last(keyed: Server, head: bytes) -> None:
    """RFC 9112 6.3: a proxy may see another end, and take the rest for a request of somebody else's."""
    hidden = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ends = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(hidden))
    with raw(keyed, head + ends + hidden) as s:
        found = all_of(s)
    preflight = head.startswith(b"OPTIONS")  # is answered before anything is read
    assert found.startswith(b"HTTP/1.1 200" if preflight else b"HTTP/1.1 400") and found.count(b"HTTP/1.1") == 1
    assert preflight or b"connection: close" in found


@pytest.mark.parametrize(
    "head", [b"NONSENSE", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b", b"GET / HTTP/1.1\r\nBad header: x"]
)
def test_what_is_no_request_gets_the_shape_of_all_errors(server: Server, head: bytes) -> None:
    with raw(server, head + b"\r\n\r\n") as s:
        top, _, body = all_of(s).partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 400") and b"application/json" in top
    error = json.loads(body)["error"]
    assert error["code"] == 400 and error["type"] == "invalid_request_error"
    assert error["message"] == "this is no HTTP request, or its head is too large"


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
REFUSED = b"POST /completion HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 3\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "codes"),
    [
        ([b"GET /health HTTP/1.1\nHost: localhost\n\n"], [400]),
        ([b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\nY: b\r\n\r\n"], [400]),
        ([b"GET /health HTTP/1.1", b"\nHost: localhost\r\n\r\n"], [400]),
        ([b"GET /health HTTP/1.1\r", b"\nHost: localhost\r\nX: a", b"\n\r\n"], [400]),
        # Behind another request, behind its body, and behind that of a request that was refused by its head.
        ([HEALTH + b"GET /health HTTP/1.1\nHost: localhost\r\n\r\n"], [200, 400]),
        ([b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n\r\n{\"content\":\n\"\"}"
          b"GET /health HTTP/1.1\nHost: localhost\r\n\r\n"], [200, 400]),
        ([REFUSED, b"123GET /health HTTP/1.1\nHost: localhost\n\n"], [403, 400]),
        # Fields behind a chunked body.
        ([b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
          b"0\r\nX: a\n\n" + HEALTH], [400]),
        ([HEALTH + HEALTH + b"NONSENSE\r\n\r\n"], [200, 200, 400]),
    ],
)  # fmt: skip
def test_no_request_hides_behind_a_line_end(server: Server, pieces: list[bytes], codes: list[int]) -> None:
    """RFC 9112 2.2 lets a server take LF alone, but a proxy may not see that end."""
    with raw(server, pieces[0]) as s:
        found = b""
        for piece in pieces[1:]:
            if pieces[0] == REFUSED:
                found += one_answer(s)
            else:
                time.sleep(0.02)  # most likely they arrive apart; the answer is the same if not
            s.sendall(piece)
        found += all_of(s)
    assert [int(x[:3]) for x in found.split(b"HTTP/1.1 ")[1:]] == codes
