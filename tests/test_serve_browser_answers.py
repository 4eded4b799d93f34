"""The page of `duo serve` in a browser: a message, what a server may send it, and what its owner wants of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from browser import ENDED, Browser, ask, delta, opened, stream_of, take_turns
from served import TALE, TEMPLATE, Server, served
from test_serve_browser import page, server, tab

__all__ = ["page", "server", "tab"]  # fixtures

pytestmark = pytest.mark.full

CHAT = "/v1/chat/completions"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\u2028&amp;</span>"


def test_a_message_and_who_wrote_the_answer(page: Browser, server: Server) -> None:
    take_turns(page)
    ask(page, TALE[0]["content"])
    page.wait(ENDED)
    body = {"messages": TALE, "max_tokens": 48, "temperature": 0, "timings_per_token": True}
    right = server.post(CHAT, body).json()
    said = right["choices"][0]["message"]["content"]
    assert page.js("document.querySelector('.answer .text').textContent") == said
    assert page.js("document.querySelector('.question').textContent") == TALE[0]["content"]
    colours = page.js("['t', 'd'].map((c) => getComputedStyle(document.querySelector(`.text .${c}`)).color)")
    assert len(set(colours)) == 2
    figures = page.js("document.querySelector('.figures').innerText")
    assert "tokens/s" in figures and "plain decoding" in figures and "Accepted by position" in figures
    assert re.search(r"tokens\s+48", figures) and re.search(r"guesses that were right\s+\d+ of \d+", figures)
    ready = re.search(r"next guess was ready\s+(\d+) %", figures)
    assert ready is not None and int(ready[1]) <= 100
    page.wait("document.querySelector('#lanes-words').textContent.startsWith('Last ')")
    assert float(page.js("document.querySelector('.rate').textContent").replace(",", "")) > 0
    assert page.js("document.querySelector('#said').textContent").startswith(TALE[0]["content"][:10])
    page.click("#colours")
    assert page.js("getComputedStyle(document.querySelector('.text .d')).color") not in colours


def test_text_is_never_html(page: Browser) -> None:
    thought = {"reasoning_content": HOSTILE}
    tokens = (HOSTILE[:9], True), (HOSTILE[9:], False)
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    page.answer_instead(CHAT, stream_of(delta("", ("", True), **thought), delta(HOSTILE, *tokens), end))
    ask(page, HOSTILE)
    page.wait(ENDED)
    shown = page.js(
        "['.question p', '.answer .text', '.thoughts div'].map((s) => document.querySelector(s).textContent)"
    )
    assert shown == [HOSTILE] * 3
    assert page.js("document.querySelectorAll('#logs img, #logs script, #conversations img').length") == 0
    assert page.js("[...document.querySelectorAll('.text span')].map((s) => s.className)") == ["d", "t"]


def test_names_of_models_and_tools_are_never_html(page: Browser, server: Server) -> None:
    props = server.get("/props").json()
    props |= {"model_name": HOSTILE, "model_alias": HOSTILE, "duo": {**props["duo"], "draft": HOSTILE}}
    scripts = "[...document.querySelectorAll('img, script')].map((e) => e.src)"
    own = page.js(scripts)
    page.answer_instead("/props", json.dumps(props).encode())
    opened(page, server.url)
    assert page.js("document.querySelector('#models').textContent") == f"{HOSTILE} with {HOSTILE}"
    assert page.js("document.title") == f"duo: {HOSTILE}"
    called = {"index": 0, "id": HOSTILE, "type": "function", "function": {"name": HOSTILE, "arguments": HOSTILE}}
    end = {"model": HOSTILE, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    result = json.dumps({"result": HOSTILE})
    page.answer_instead(
        CHAT, stream_of(delta("", tool_calls=[called]), delta(result, (result, False), role="tool"), end)
    )
    ask(page, TALE[0]["content"])
    page.wait(ENDED)
    assert page.js("document.querySelector('.answer .text').textContent") == result
    assert page.js(scripts) == own  # and the console is empty


def test_an_error_is_said_and_the_message_can_be_sent_again(page: Browser) -> None:
    page.answer_instead(
        CHAT, stream_of(delta("Once", ("Once", False)), {"error": {"code": 500, "message": "The disk is full."}})
    )
    ask(page, TALE[0]["content"])
    page.wait("document.querySelector('.note.bad')?.textContent.startsWith('The disk is full.')")
    page.call("Fetch.disable")
    page.click(".note button")
    page.wait(f"!document.querySelector('.note.bad') && {ENDED}")
    assert page.js("document.querySelectorAll('.answer').length") == 1
    sent = [b["messages"] for b in page.bodies if "messages" in b]
    assert sent[0] == sent[1] == TALE
    page.answer_instead(CHAT, stream_of({"error": {"code": 500, "message": "The disk is full."}}))
    ask(page, "Lost")
    page.wait("document.querySelector('.note.bad')")
    page.call("Fetch.disable")
    ask(page, "Found")
    page.wait(f"document.querySelectorAll('.answer').length === 3 && {ENDED}")
    last = [b["messages"] for b in page.bodies if "messages" in b][-1]
    assert [m["role"] for m in last] == ["user", "assistant", "user"] and last[-1]["content"] == "Found"


def test_a_key_is_asked_for_and_kept_in_this_tab_only(tab: Browser, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    with served({"api_key_file": str(keys)}, n_ctx=512, n_parallel=1, chat_template=TEMPLATE) as s:
        assert s.get("/").status_code == s.get("/ui/page.css").status_code == 200
        assert s.get("/duo/trace").status_code == 401
        tab.size(1280, 800)
        tab.open(s.url + "/")
        for key in ("wrong", "secret"):
            tab.wait("document.querySelector('#keys').open && document.querySelector('#key').value === ''")
            tab.type(key)
            tab.press("Enter")
        tab.wait("document.querySelector('input[name=mode]:checked') !== null")
        ask(tab, TALE[0]["content"])
        tab.wait(ENDED)
        assert tab.js("document.querySelector('.answer .text').textContent")
        assert tab.js("JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])") == (
            '[{"duo-key":"secret"},{},""]'
        )
        tab.js("document.querySelector('.shut').click()")
        tab.open("about:blank#")
        assert [c for c in tab.complaints if "401" not in c] == []


def test_the_owners_defaults(tab: Browser) -> None:
    config = {"theme": "dark", "systemMessage": "Be brief.", "temperature": 0.123, "max_tokens": 7, "top_k": 9}
    with served({"ui_config": json.dumps(config)}, chat_template=TEMPLATE, n_ctx=256) as s:
        tab.bodies.clear()
        opened(tab, s.url)
        assert tab.js("document.documentElement.dataset.theme") == "dark"
        assert tab.js("['temperature', 'most'].map((x) => document.querySelector('#' + x).value)") == ["0.12", "7"]
        for i, text in enumerate(("Hello", "Again"), 1):
            tab.js("document.querySelector('#ask').focus()")
            tab.type(text)
            tab.press("Enter")
            tab.wait(f"document.querySelectorAll('.answer').length === {i} && {ENDED}")
            tab.js("document.querySelector('#temperature').value = 0.5; document.querySelector('#most').value = ''")
    first, second = (b for b in tab.bodies if "messages" in b)
    assert first["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    assert (first["temperature"], first["max_tokens"], first["top_k"]) == (0.123, 7, 9)
    assert (second["temperature"], second["top_k"]) == (0.5, 9) and "max_tokens" not in second
