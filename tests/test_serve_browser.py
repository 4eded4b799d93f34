"""The page of `duo serve` in a browser, where one is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import ENDED, Browser, ask, browsing, opened, take_turns
from served import TALE, TEMPLATE, Server, served

pytestmark = [pytest.mark.full, pytest.mark.daily]  # test_serve_browser_answers sends messages

LONG = "Tell me the tale of the frog, and do not end it."
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served(chat_template=TEMPLATE, always=True, ignore_eos=True, n_ctx=16384) as s:
        yield s


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browsing() as b:
        yield b


@pytest.fixture
def page(tab: Browser, server: Server) -> Iterator[Browser]:
    """The page, newly opened. Its console must stay empty."""
    tab.size(1280, 800)
    tab.prefer("light")
    tab.complaints.clear()
    tab.bodies.clear()
    opened(tab, server.url)
    yield tab
    tab.call("Fetch.disable")
    tab.js("[...document.querySelectorAll('.shut')].forEach((b) => b.click())")
    assert tab.complaints == []
    server.wait_until_idle()


PICTURE = "[...document.querySelector('#lanes').toDataURL()].reduce((h, c) => (31 * h + c.charCodeAt(0)) | 0, 0)"


# Counts the frames of the lanes that are still to come: the next one is asked for 30 ms later.
COUNT = """
globalThis.nFrames = 0;
for (const [name, isOne] of [["requestAnimationFrame", () => true], ["setTimeout", (ms) => ms === 30]]) {
    const real = globalThis[name];
    globalThis[name] = (f, ...more) => {
        if (!isOne(...more)) return real(f, ...more);
        nFrames += 1;
        return real((...args) => { nFrames -= 1; f(...args); }, ...more);
    };
}
"""
# Questions for what the models have done. The page goes on to ask, one after the other.
ASKED = "performance.getEntriesByType('resource').filter((e) => e.name.includes('/duo/trace')).length"


def test_the_lanes_move(page: Browser, server: Server) -> None:
    page.js(COUNT)
    still = page.js(PICTURE)
    ask(page, LONG, most=12000)  # until it is stopped
    # The words are ahead of the picture, and may be those of the chat before.
    page.wait(f"{PICTURE} !== {still}")
    page.wait("/^Last .* s: [1-9].* steps, .* hits?$/.test(document.querySelector('#lanes-words').textContent)")
    first = page.js(PICTURE)
    page.wait(f"{PICTURE} !== {first}")
    page.click("#stop")
    page.wait(ENDED)
    server.wait_until_idle()
    page.js("performance.clearResourceTimings()")
    page.wait(f"{ASKED} > 2")  # the second one was asked after the end, and its answer has been taken
    page.wait("nFrames === 0")
    rest = page.js(PICTURE)
    page.wait(f"{ASKED} > 3")
    assert page.js(PICTURE) == rest, "time stands still when nobody writes"
    span = page.js("document.querySelector('#lanes-words').textContent")
    page.click("#wider")
    page.wait(f"document.querySelector('#lanes-words').textContent !== {json.dumps(span)}")
    assert page.js(PICTURE) != rest


def test_the_buttons_act_on_the_next_message(page: Browser) -> None:
    page.click("input[name=length][value='3']")
    ask(page, "One")
    page.wait(ENDED)
    page.click("input[name=mode][value=plain]")
    assert page.js("document.querySelector('#length').disabled")
    ask(page, "Two")
    page.wait(f"document.querySelectorAll('.answer').length === 2 && {ENDED}")
    page.click("input[name=mode][value=sync]")
    page.click("input[name=length][value='']")
    ask(page, "Three")
    page.wait(f"document.querySelectorAll('.answer').length === 3 && {ENDED}")
    one, two, three = (b for b in page.bodies if "messages" in b)
    assert (one["mode"], one["draft"]) == ("async", {"n_max": 3})
    assert two["mode"] == "plain" and "draft" not in two and three["mode"] == "sync" and "draft" not in three
    assert [m["role"] for m in three["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    drafted = page.js("[...document.querySelectorAll('.answer')].map((a) => a.querySelectorAll('.d').length > 0)")
    assert drafted[1:] == [False, True]
    labels = page.js("[...document.querySelectorAll('.how')].map((a) => a.textContent)")
    assert labels == ["async, length 3", "plain", "sync, auto"]


def test_two_conversations_at_once(page: Browser, server: Server) -> None:
    ask(page, LONG, most=6000)
    page.wait("document.querySelector('.answer.writes .text').textContent.length > 20")
    page.click("#new")
    ask(page, "And now for something else.", most=6000)
    both = (
        "[...document.querySelectorAll('.answer.writes .text')].filter((t) => t.textContent.length > 20).length === 2"
    )
    page.wait(both)
    assert len(server.service.running) == 2
    page.press("Escape")
    page.wait("document.querySelector('.log:not([hidden]) .note').textContent === 'Stopped.'")
    page.click("#conversations .open")
    assert page.js("document.querySelector('.log:not([hidden]) .question').textContent") == LONG
    grown = page.js("document.querySelector('.writes .text').textContent.length")
    page.wait(f"document.querySelector('.writes .text').textContent.length > {grown}")
    page.click("#stop")
    page.wait("document.querySelectorAll('.answer.writes').length === 0")


def test_by_keyboard_alone(page: Browser) -> None:
    seen: list[str] = []
    look = """(() => {
        const e = document.activeElement;
        const outlined = [e, e.closest("label") ?? e].some((x) => getComputedStyle(x).outlineStyle !== "none");
        return [e.id || e.name || e.className, outlined || e.closest(".ask") !== null];
    })()"""
    for _ in range(16):
        page.press("Tab")
        where, shown = page.js(look)
        seen += [where] if where else []  # the browser's own bar has the focus once
        assert shown or not where, seen
    rooms = ["send", "mode", "length", "temperature", "most"]
    assert seen[:15] == [*rooms, "skip", "colours", "theme", "wider", "closer", "new", "open", "shut", "log", "ask"]
    page.js("document.querySelector('input[name=mode]:checked').focus()")
    page.press("ArrowRight")
    assert page.js("document.querySelector('input[name=mode]:checked').value") == "sync"
    page.js("document.querySelector('#ask').focus()")
    page.type("One")
    page.press("Enter", shift=True)
    page.type("Two")
    page.press("Enter")
    page.wait("document.querySelector('.question')")
    assert page.js("document.querySelector('.question').textContent") == "One\nTwo"
    page.press("Escape")
    page.wait(ENDED)
    assert page.js("document.activeElement.id") == "ask"


def test_on_a_phone(page: Browser) -> None:
    page.size(360, 640, phone=True)
    ask(page, TALE[0]["content"])
    page.wait(ENDED)
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    inside = (
        "(() => { const r = document.querySelector('%s').getBoundingClientRect(); "
        "return r.left >= 0 && r.top >= 0 && r.right <= innerWidth && r.bottom <= innerHeight })()"
    )
    for name in ("#ask", "#send", "#lanes", "#new", "#mode", "#theme"):
        assert page.js(inside % name), name
    small = (
        "[...document.querySelectorAll('button, label:has(input[type=radio])')].filter((b) => b.checkVisibility())"
        ".map((b) => [b.id || b.innerText, b.getBoundingClientRect()]).filter(([, r]) => r.width < 24 || r.height < 24)"
        ".map(([name]) => name)"
    )
    assert page.js(small) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_are_told_apart(page: Browser, scheme: str) -> None:
    """WCAG AA: 4.5 to 1 for text."""
    page.prefer(scheme)
    take_turns(page)
    ask(page, TALE[0]["content"])
    page.wait(ENDED)
    found = page.js((Path(__file__).parent / "contrasts.js").read_text("utf-8"))
    assert {"t", "d"} <= {name for _, name, _ in found} and len(found) > 30
    assert [x for x in found if x[0] < 4.5] == []


def test_the_theme_may_be_chosen(page: Browser, server: Server) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.js(paper)
    page.js("document.querySelector('#theme').click(); document.querySelector('#theme').click()")
    assert page.js("document.querySelector('#theme').textContent") == "Theme: dark"
    dark = page.js(paper)
    assert dark != light
    opened(page, server.url)
    assert page.js(paper) == dark
    page.click("#theme")
    assert page.js(paper) == light
