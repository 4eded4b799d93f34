"""Whose requests the server answers: names that it is called by, and pages that send them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from served import Server, served

from duo.errors import BadValueError
from duo.server import visitors as visitors_of
from duo.server.settings import ServerSettings
from duo.server.visitors import PageHeaders, Visitors, host_of

COMPLETION = {"prompt": "once", "n_predict": 2}
EVIL = "evil.example:9100"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served({"header_timeout": 600.0, "body_timeout": 600.0}) as s:  # clients of a busy machine are slow, too
        yield s


@pytest.fixture(scope="module")
def open_to_names() -> Iterator[Server]:
    with served({"allowed_hosts": "duo.example, other"}) as s:
        yield s


def status(s: Server, method: str, path: str, host: str = "", **more: Any) -> int:
    headers = ({"Host": host} if host else {}) | more.pop("headers", {})
    return (s.get(path, headers=headers) if method == "GET" else s.post(path, COMPLETION, headers=headers)).status_code


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:9", "127.8.9.1", "[::1]:8080", "a.localhost"])
def test_names_of_this_machine_are_known(server: Server, host: str) -> None:
    assert status(server, "GET", "/v1/models", host) == status(server, "POST", "/completion", host) == 200


@pytest.mark.parametrize("host", [EVIL, "127.0.0.1.evil.example", "localhost.evil", "duo", "docker.internal", "x y"])
def test_a_page_that_gives_its_name_this_address_reads_nothing(server: Server, host: str) -> None:
    before = server.n_refused("host")
    for method, path in (("GET", "/v1/models"), ("GET", "/"), ("GET", "/health"), ("POST", "/completion")):
        assert status(server, method, path, host, headers={"Origin": f"http://{host}"}) == 403
    answer = server.get("/slots", headers={"Host": host})
    assert answer.json()["error"]["type"] == "permission_error"
    assert "--allowed-hosts" in answer.json()["error"]["message"]
    assert server.n_refused("host") == before + 5
    assert not server.service.is_busy and not server.service.running


def test_names_can_be_allowed(open_to_names: Server) -> None:
    for host in ("duo.example", "Duo.Example:443", "other.", "127.0.0.1"):
        assert status(open_to_names, "POST", "/completion", host) == 200
    assert status(open_to_names, "POST", "/completion", EVIL) == 403


def test_a_request_across_sites_that_needs_no_permission_is_refused_before_work(server: Server) -> None:
    body = b'{"prompt": "once", "n_predict": 2}'
    plain = {"Content-Type": "text/plain"}
    before = server.n_refused("origin")
    for origin in ("https://evil.example", "null", "http://localhost.evil.example"):
        headers = plain | {"Origin": origin}
        for path in ("/completion", "/v1/chat/completions", "/tokenize"):
            answer = server.send(path, body, headers)
            assert answer.status_code == 403 and "--cors-origins" in answer.json()["error"]["message"]
        assert server.get("/v1/models", headers={"Origin": origin}).status_code == 200  # it cannot see the answer
    assert server.n_refused("origin") == before + 9
    for origin in (server.url, "http://localhost:3000", ""):
        headers = plain | ({"Origin": origin} if origin else {})
        assert server.send("/completion", body, headers).status_code == 200


@pytest.mark.parametrize(
    ("given", "host", "known"),
    [
        ({}, EVIL, False),
        ({"host": "localhost,::1"}, EVIL, False),
        ({"host": "/run/duo.sock,127.0.0.1"}, EVIL, False),
        ({}, "192.168.0.7:8080", True),
        ({}, "[fe80::1]", True),
        ({"host": "0.0.0.0", "insecure": True}, EVIL, False),
        ({"host": "0.0.0.0"}, EVIL, False),
        ({"host": "0.0.0.0"}, "duo:8080", True),  # a container's service
        ({"host": "0.0.0.0", "allowed_hosts": "duo.example"}, "192.168.0.7:8080", True),
        ({"host": "0.0.0.0", "allowed_hosts": "duo.example"}, f"{socket.gethostname()}:8080", True),
        ({}, "host.docker.internal:8080", True),
        ({}, "evil.docker.internal", False),
        ({"api_key": "k"}, EVIL, True),
        ({"api_key": "k", "allowed_hosts": "duo"}, EVIL, False),
        ({"host": "0.0.0.0", "allowed_hosts": "duo,b.c"}, EVIL, False),
        ({"host": "0.0.0.0", "allowed_hosts": "duo,b.c"}, "b.c:80", True),
        ({"allowed_hosts": "*"}, EVIL, True),
        ({}, "", True),
    ],
)
def test_who_has_to_call_the_server_by_its_name(given: dict[str, Any], host: str, known: bool) -> None:
    assert ServerSettings.of(given, "demo").visitors.knows_host(host) is known


@pytest.mark.parametrize(
    ("given", "host", "known"),
    [
        ({}, EVIL, False),
        ({"insecure": True}, EVIL, False),
        ({}, "", True),
        ({}, "127.0.0.1:8080", True),
        ({}, "192.168.0.7:8080", True),
        ({}, "duo:8080", False),  # of a machine of the local network, perhaps
        ({}, "box:8080", True),
        ({}, "box.local", True),
        ({}, "box.lab.example", True),
        ({}, "box.evil.example", False),
        ({"allowed_hosts": "duo.example"}, "duo.example", True),
        ({"allowed_hosts": "*"}, EVIL, True),
        ({"api_key": "k"}, EVIL, True),
    ],
)
def test_a_browser_of_this_machine_is_not_fooled_by_an_open_address(
    given: dict[str, Any], host: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where --host 0.0.0.0 has no key: a foreign name that means 127.0.0.1."""
    monkeypatch.setattr(socket, "gethostname", lambda: "Box")
    monkeypatch.setattr(visitors_of, "_whole_name", lambda: "box.lab.example")
    visitors = ServerSettings.of({"host": "0.0.0.0", **given}, "demo").visitors
    assert visitors.knows_host(host, over_loopback=True) is known


def test_an_open_server_refuses_what_pages_of_others_send() -> None:
    with served({"host": "0.0.0.0"}, n_parallel=1) as s:
        here = Server(s.url.replace("0.0.0.0", "127.0.0.1"), s.service, s.serving)
        assert status(here, "POST", "/completion") == 200
        assert status(here, "GET", "/v1/models", EVIL) == 403  # its name was made to mean 127.0.0.1
        for path in ("/completion", "/slots/0?action=erase", "/lora-adapters", "/props"):
            assert status(here, "POST", path, headers={"Origin": "https://evil.example"}) == 403
            assert status(here, "POST", path, EVIL, headers={"Origin": f"http://{EVIL}"}) == 403


def test_pages_that_may_use_it() -> None:
    ours = Visitors.of(None, "https://ours.example, localhost", keyed=False)
    for origin, known in (
        ("https://ours.example", True), ("https://ours.example.evil", False), ("http://ours.example", False),
        ("http://127.0.0.1:5000", True), ("https://duo.example:8443", True), ("https://duo.example", False),
    ):  # fmt: skip
        assert ours.knows_origin("POST", origin, "duo.example:8443") is known, origin
        assert ours.knows_origin("GET", origin, "duo.example:8443")
    assert ours.knows_origin(
        "POST", "https://duo.example", "127.0.0.1:8080", fetch_site="same-origin"
    )  # behind a proxy
    assert not ours.knows_origin("POST", "https://evil", "127.0.0.1:8080", fetch_site="cross-site")
    for origin, site, may in (
        ("", "", True), ("", "cross-site", False), ("", "same-origin", True), ("https://evil", "", False),
        ("https://ours.example", "cross-site", True),
    ):  # fmt: skip
        assert ours.may_load(PageHeaders(origin, "duo.example", site)) is may, (origin, site)
    assert Visitors.of(None, "*").knows_origin("POST", "null", "x")
    assert not Visitors.of(None, "").knows_origin("POST", "http://localhost", "127.0.0.1:1")


def test_what_is_no_address_is_no_page_that_may_use_it(server: Server) -> None:
    ours, page = Visitors.of(None, "localhost"), PageHeaders(host="192.168.0.7:8080", referer="http://[")
    assert not ours.may_load(page) and not ours.knows_origin("POST", "http://[", "192.168.0.7:8080")
    assert status(server, "POST", "/completion", headers={"Origin": "http://["}) == 403


@pytest.mark.parametrize(
    ("referer", "agent", "may"),
    [
        ("", "curl/8", True), ("", "", True), ("", "Mozilla/5.0 (X11)", False),
        ("http://192.168.0.7:8080/", "Mozilla/5.0 (X11)", True),
        ("http://192.168.0.7:9000/", "Mozilla/5.0 (X11)", False),
        ("http://evil.example/", "Mozilla/5.0 (X11)", False), ("http://localhost:3000/a", "Mozilla/5.0 (X11)", True),
    ],
)  # fmt: skip
def test_a_picture_of_a_page_loads_no_model_of_a_server_with_an_address(referer: str, agent: str, may: bool) -> None:
    """There browsers do not say that a request is across sites, and a page can leave out the Referer."""
    page = PageHeaders(host="192.168.0.7:8080", referer=referer, agent=agent)
    assert Visitors.of(None, "localhost").may_load(page) is may
    assert Visitors.of(None, "*").may_load(page)


@pytest.mark.parametrize(
    ("value", "means"),
    [
        ("duo.example", "duo.example"), ("Duo.Example.:443", "duo.example"), ("fd00::5", "fd00::5"),
        ("[FD00::5]", "fd00::5"), ("[fd00::5]:80", "fd00::5"), ("192.168.0.7", "192.168.0.7"),
        ("xn--mnchen-3ya.example", "xn--mnchen-3ya.example"), ("my_box", "my_box"), ("straße.example", None),
        ("http://duo.example", None), ("*.example", None), ("*:80", None), ("duo.example/", None), ("a b", None),
    ],
)  # fmt: skip
def test_names_of_allowed_hosts(value: str, means: str | None) -> None:
    if means is None:
        with pytest.raises(BadValueError, match=r"--allowed-hosts .* is not a name; write it as"):
            Visitors.of(value, "")
    else:
        assert Visitors.of(value, "").hosts == {means}


@pytest.mark.parametrize(
    ("value", "means"),
    [
        ("https://Ours.example/", "https://ours.example"), ("https://a.example:443", "https://a.example"),
        ("http://a.example:443", "http://a.example:443"), ("http://[FD00::5]:80", "http://[fd00::5]"),
        ("https://xn--mnchen-3ya.example", "https://xn--mnchen-3ya.example"), ("app://obsidian.md", "app://obsidian.md"),
        ("http://[fd00:0:0:0:0:0:0:5]", "http://[fd00::5]"), ("https://straße.example", None),
        ("https://*.example", None), ("https://a b", None),
        ("*", "*"), ("localhost", "localhost"), ("null", "null"),
        ("a.example", None), ("https://", None), ("https://a.example/page", None), ("https://a:b", None),
        ("https://me@a.example", None),
    ],
)  # fmt: skip
def test_origins_that_are_allowed(value: str, means: str | None) -> None:
    if means is None:
        with pytest.raises(BadValueError, match=r"--cors-origins .* is not an origin; write it as"):
            Visitors.of(None, value)
    else:
        assert Visitors.of(None, value).origins == (means,)


def test_names_without_ports() -> None:
    for text, name in (
        ("[::1]:8080", "::1"), ("Localhost.:80", "localhost"), (" a ", "a"), ("a:", "a"), ("::1", ""), ("a:b", ""),
        ("[::1", ""), ("", ""),
    ):  # fmt: skip
        assert host_of(text) == name


def test_tools_that_only_others_would_run_are_refused_by_name(server: Server) -> None:
    messages = [{"role": "user", "content": "Who won?"}]
    function = {"name": "roll", "parameters": {"type": "object"}}
    tool, searches = {"type": "function", "function": function}, {"type": "web_search"}
    of_anthropic = [
        {"name": "roll", "input_schema": {"type": "object"}},
        {"type": "web_search_1", "name": "web_search"},
    ]
    for path, body, tools in (
        ("/v1/messages", {"messages": messages}, of_anthropic),
        ("/v1/messages/count_tokens", {"messages": messages}, of_anthropic),
        ("/v1/chat/completions", {"messages": messages}, [tool, searches]),
        ("/v1/responses", {"input": "Who won?"}, [{"type": "function", **function}, searches]),
    ):
        for some, number in ((tools, 1), (tools[1:], 0)):  # beside a function, and alone
            answer = server.post(path, {**body, "tools": some, "max_tokens": 4})
            said = answer.json()["error"]["message"]
            assert answer.status_code == 400 and f"tool {number} " in said and "web_search" in said, answer.text
