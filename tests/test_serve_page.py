"""The page of `duo serve`: its files, and the trace that it shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import httpx
import pytest
from served import TALE, TEMPLATE, Server, served
from waits import wait_until

from duo.errors import BadValueError, DuoError
from duo.server.page_files import KINDS
from duo.server.page_settings import PageSettings

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served(chat_template=TEMPLATE, always=True) as s:
        yield s


def test_nothing_but_the_packages_own_files_runs(server: Server) -> None:
    whole = server.get("/")
    policy = dict(p.strip().split(" ", 1) for p in whole.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["script-src"] == policy["style-src"] == "'self'"
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<style|style=|\son\w+=|<script(?! type=\"module\" src=\"ui/page.js\"></script>)", whole.text)
    for name in re.findall(r'(?:src|href)="([^"#]+)"', whole.text):
        assert name.startswith("ui/") and server.get("/" + name).status_code == 200
    code = "".join(server.get(f"/ui/{name}").text for name in KINDS if name.endswith(".js"))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://", code
    )


def test_a_browser_asks_only_for_what_has_changed(server: Server) -> None:
    first = server.get("/ui/page.css")
    again = server.get("/ui/page.css", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304 and again.content == b""
    assert httpx.head(server.url + "/").status_code == 200
    assert (server.get("/ui/nothing.js").status_code, server.get("/ui/..%2fapp.py").status_code) == (404, 400)


def test_all_files_of_the_page_are_in_the_package() -> None:
    inside = {f.name for f in (files("duo.server") / "ui").iterdir()}
    assert inside == KINDS.keys()


def test_without_a_page() -> None:
    with served({"ui": False}, n_ctx=256, n_parallel=1) as s:
        assert s.get("/").status_code == s.get("/ui/page.js").status_code == s.get("/duo/trace").status_code == 404
        assert not s.duo.placed.tracing


def test_below_a_prefix() -> None:
    with served({"api_prefix": "/models"}, n_ctx=256, n_parallel=1) as s:
        assert s.get("/").status_code == s.get("/ui/page.js").status_code == s.get("/duo/trace").status_code == 200
        assert httpx.get(s.url, follow_redirects=True).text == s.get("/").text


def test_the_trace(server: Server) -> None:
    first = server.get("/duo/trace").json()
    server.post(CHAT, {"messages": TALE, "max_tokens": 40, "temperature": 0})
    events, last = [], first

    def all_is_told() -> bool:  # when the text ends, the draft may still be at its last step
        nonlocal last
        last = server.get(f"/duo/trace?after={last['next']}").json()
        told = [dict(zip(last["fields"], e, strict=True)) for e in last["events"]]
        assert all(first["now_us"] <= e["t0_us"] <= e["t1_us"] <= last["now_us"] for e in told)
        events.extend(told)
        return last["events"] == [] and {e["lane"] for e in events} == {"target", "draft"}

    wait_until(all_is_told)
    assert len(events) == last["next"] - first["next"]
    for wrong in ("-1", "x", "1.5", "9" * 30, ""):
        assert server.get("/duo/trace", params={"after": wrong}).status_code == 400


def test_a_token_carries_its_text(server: Server) -> None:
    body = {"messages": TALE, "max_tokens": 40, "temperature": 1.5, "seed": 3, "timings_per_token": True}
    chunks = [e for _, e in server.events(CHAT, body)[:-1]]
    tokens = [t for e in chunks for t in e.get("duo", {}).get("tokens", ())]
    assert "".join(t["text"] for t in tokens) == "".join(e["choices"][0]["delta"].get("content") or "" for e in chunks)


def test_defaults_of_the_pages_settings() -> None:
    config = {"theme": "dark", "systemMessage": "Be brief.", "temperature": 0.25, "typ_p": 0.9, "customCss": "x"}
    with served({"ui_config": json.dumps(config)}, chat_template=TEMPLATE) as s:
        props = s.get("/props").json()
    assert props["ui_settings"] == props["webui_settings"] == config
    fields = {"temperature": 0.25, "typical_p": 0.9}
    assert props["duo"]["page"] == {"theme": "dark", "system": "Be brief.", "fields": fields}
    assert PageSettings.of(json.dumps(config), None).unknown == ["customCss"]


# What Python reads, but the answer of /props cannot hold.
UNSENDABLE = ('{"x": NaN}', '{"x": [-Infinity]}', '{"temperature": 1e999}', '{"x": "\\ud800"}', '{"\\udfff": 1}')


def test_wrong_settings_of_the_page(tmp_path: Path) -> None:
    file = tmp_path / "page.json"
    file.write_text('{"top_k": 5}')
    assert PageSettings.of(None, str(file)).fields == {"top_k": 5}
    for text, why in (
        ("[1]", "--ui-config is no JSON object"),
        ("{", "--ui-config is no JSON object"),
        ('{"theme": ["dark"]}', "choose from light, dark, system"),
        ('{"systemMessage": 5}', "systemMessage is 5 in --ui-config; give a text"),
        ('{"temperature": "hot"}', "temperature is 'hot' in --ui-config, but"),
        ('{"top_k": 1.5}', "top_k is"),
        ('{"max_tokens": 0}', "max_tokens is 0 in --ui-config"),
        *((text, "--ui-config holds what JSON cannot") for text in UNSENDABLE),
    ):
        with pytest.raises(BadValueError, match=re.escape(why)):
            PageSettings.of(text, None)
    with pytest.raises(BadValueError, match="choose one"):
        PageSettings.of("{}", str(file))
    with pytest.raises(DuoError, match="--ui-config-file"):
        PageSettings.of(None, str(tmp_path / "none.json"))
