"""Pictures on the page of `duo serve`: dropped, pasted or chosen, shown, removed, sent; and what is refused."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from browser import ENDED, Browser, ask, opened, stream_of
from PIL import Image
from served import TEMPLATE, Server, served
from test_serve_browser import page, tab
from vision_models import png, png_of, projector

from duo.chat.pictures import url_of
from duo.models.demo import demo_pair
from duo.models.header import read_header

__all__ = ["page", "tab"]  # fixtures

pytestmark = [pytest.mark.full, pytest.mark.daily]  # test_serve_pictures has pictures without it

CHAT = "/v1/chat/completions"
NAMES = "(e) => e.querySelector('canvas').getAttribute('aria-label')"
SHOWN = f"[...document.querySelectorAll('#pictures li')].map({NAMES})"
NOTE = "document.querySelector('#picture-note:not([hidden])')?.textContent"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = projector(tmp_path_factory.mktemp("eyes") / "mlp.gguf", "mlp", read_header(demo_pair()[0]).n_embd)
    with served(chat_template=TEMPLATE, mmproj=file, n_parallel=2, n_ctx=4096) as s:
        yield s


def wait_for(page: Browser, *names: str) -> None:
    page.wait(f"JSON.stringify({SHOWN}) === JSON.stringify({[*names]!r})")


def sent(page: Browser) -> Any:
    return [b["messages"] for b in page.bodies if "messages" in b][-1]


def test_dropped_pictures_are_shown_and_sent(page: Browser, server: Server, tmp_path: Path) -> None:
    files = [tmp_path / "a.png", tmp_path / "b.png"]
    for seed, file in enumerate(files):
        file.write_bytes(png(200, 100, seed=seed))
    page.drop("#ask", *files)
    wait_for(page, "a.png", "b.png")
    assert (
        page.js("[...document.querySelectorAll('#pictures canvas')].map((c) => [c.width, c.height])") == [[96, 48]] * 2
    )
    ask(page, "What is it?", most=8)
    page.wait(ENDED)
    parts = [{"type": "image_url", "image_url": {"url": url_of(f.read_bytes())}} for f in files]
    message = {"role": "user", "content": [*parts, {"type": "text", "text": "What is it?"}]}
    assert sent(page) == [message]
    right = server.post(CHAT, {"messages": [message], "max_tokens": 8, "temperature": 0}).json()
    assert page.js("document.querySelector('.answer .text').textContent") == right["choices"][0]["message"]["content"]
    assert page.js("document.querySelectorAll('.question canvas').length") == 2
    assert page.js("document.querySelector('.question').textContent") == "What is it?"
    wait_for(page)
    ask(page, "And now?", most=8)
    page.wait(f"document.querySelectorAll('.answer').length === 2 && {ENDED}")
    assert sent(page)[0] == message and sent(page)[2] == {"role": "user", "content": "And now?"}


def test_pasted_pictures_can_be_removed(page: Browser) -> None:
    page.js("document.querySelector('#ask').focus()")
    page.paste(png(seed=1), "one.png", "image/png")
    page.paste(png(seed=2), "two.png", "image/png")
    wait_for(page, "one.png", "two.png")
    page.click("#pictures li:nth-child(1) button")
    wait_for(page, "two.png")
    assert page.js("document.activeElement.id") == "ask"
    page.press("Enter")  # a picture alone is a message
    page.wait("document.querySelector('.question canvas')")
    page.press("Escape")
    page.wait(ENDED)
    assert sent(page)[0]["content"] == [{"type": "image_url", "image_url": {"url": url_of(png(seed=2))}}]
    assert page.js("document.querySelector('#conversations .title').textContent") == "two.png"


def test_a_picture_from_the_dialog_in_another_format(page: Browser, tmp_path: Path) -> None:
    made = page.js(
        "(() => { const c = document.createElement('canvas'); c.width = c.height = 30; "
        "c.getContext('2d').fillRect(5, 5, 9, 9); return c.toDataURL('image/webp') })()"
    )
    file = tmp_path / "x.webp"
    file.write_bytes(base64.b64decode(made.partition(",")[2]))
    assert file.read_bytes().startswith(b"RIFF")  # the server does not read it
    page.choose("#files", file)
    wait_for(page, "x.webp")
    ask(page, "What is it?", most=4)
    page.wait(ENDED)
    assert sent(page)[0]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert page.js("document.querySelector('.note.bad')") is None


def test_a_conversation_keeps_its_pictures(page: Browser) -> None:
    page.js("document.querySelector('#ask').focus()")
    page.paste(png(), "mine.png", "image/png")
    wait_for(page, "mine.png")
    ask(page, "What is it?", most=2)
    page.wait(ENDED)
    page.paste(png(), "next.png", "image/png")
    wait_for(page, "next.png")
    page.click("#new")
    wait_for(page)
    page.click("#conversations .open")
    wait_for(page, "next.png")


def jpeg(width: int, height: int, orientation: int) -> bytes:
    """As a phone saves it: a red left half, and how to turn it."""
    picture, out = Image.new("RGB", (width, height)), BytesIO()
    picture.paste((255, 0, 0), (0, 0, width // 2, height))
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture.save(out, "JPEG", exif=exif)
    return out.getvalue()


def seen_by_model(page: Browser, n: int) -> list[Image.Image]:
    parts = sent(page)[0]["content"]
    assert len(parts) == n + 1
    return [Image.open(BytesIO(base64.b64decode(p["image_url"]["url"].partition(",")[2]))) for p in parts[:n]]


def test_photos_are_scaled_down_and_turned_upright(page: Browser, tmp_path: Path) -> None:
    clear, large, noisy = BytesIO(), BytesIO(), BytesIO()
    Image.new("RGBA", (3000, 20), (9, 9, 9, 0)).save(clear, "PNG")
    Image.frombytes("RGB", (900, 900), random.Random(1).randbytes(3 * 900 * 900)).save(large, "PNG")
    noise = Image.frombytes("RGBA", (1600, 1600), random.Random(2).randbytes(4 * 1600 * 1600))
    noise.save(noisy, "PNG")  # however it is packed, this is too large
    assert len(large.getvalue()) > 2e6 and len(noisy.getvalue()) > 1e7
    files = {"a.jpg": jpeg(80, 40, 6), "b.jpg": jpeg(4000, 3000, 1), "c.png": clear.getvalue(),
             "d.png": large.getvalue(), "e.png": noisy.getvalue()}  # fmt: skip
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    page.drop("#ask", *(tmp_path / name for name in files))
    wait_for(page, *files)
    ask(page, "What is it?", most=2)
    page.wait(ENDED)
    found = seen_by_model(page, 5)
    assert [p.format for p in found] == ["JPEG", "JPEG", "PNG", "JPEG", "PNG"]
    assert [p.size for p in found] == [(40, 80), (2048, 1536), (2048, 14), (900, 900), found[4].size]
    assert 256 <= max(found[4].size) < 1600
    upright = found[0].convert("RGB")  # turned to the right: what was left is above
    assert upright.getpixel((20, 10))[0] > 200 > 50 > upright.getpixel((20, 70))[0]
    assert not found[0].getexif().get(0x0112)
    assert page.js("document.querySelector('.note.bad')") is None


def test_a_browser_that_cannot_draw_says_so(page: Browser, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(80, 40, 1))
    page.js("HTMLCanvasElement.prototype.toBlob = (done) => done(null)")  # as where memory is short
    page.drop("#ask", tmp_path / "a.jpg")
    page.wait(f"{NOTE} === 'The browser cannot scale a.jpg down. Try a smaller picture.'")
    wait_for(page)


@pytest.mark.parametrize(
    ("data", "name", "why"),
    [
        (b"Once upon a time", "tale.txt", "tale.txt is no picture that this browser can read."),
        (b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "x.svg", "x.svg is no picture that this "
         "browser can read."),
        (png()[:20], "cut.png", "cut.png is no picture that this browser can read."),
        (png_of(9000, 6000, bytes(6000 * (9000 // 8 + 1)), 1, 0), "wide.png", "wide.png has 54 million pixels, and 50 "
         "million are allowed. Scale it down."),
    ],
    ids=lambda x: x if isinstance(x, str) and " " not in x else "",
)  # fmt: skip
def test_what_is_no_picture_is_refused(page: Browser, tmp_path: Path, data: bytes, name: str, why: str) -> None:
    (tmp_path / name).write_bytes(data)
    (tmp_path / "good.png").write_bytes(png())
    page.drop("#ask", tmp_path / name, tmp_path / "good.png")
    page.wait(f"{NOTE} === {why!r}")
    wait_for(page, "good.png")
    page.click("#pictures button")
    page.wait(f"{NOTE} === undefined")


def test_a_model_without_eyes_says_so(tab: Browser, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    with served(chat_template=TEMPLATE, n_ctx=512, n_parallel=1) as s:
        opened(tab, s.url)
        assert tab.js("document.querySelector('#attach').hidden")
        tab.drop("#ask", tmp_path / "a.png")
        tab.wait(f"{NOTE}?.startsWith('This model reads no pictures.')")
        wait_for(tab)
        ask(tab, "Once", most=2)
        tab.wait(ENDED)
        assert tab.js(NOTE) is None
        tab.js("document.querySelector('.shut').click()")
        tab.open("about:blank#")


def test_no_message_is_larger_than_the_server_takes(tab: Browser, tmp_path: Path) -> None:
    file = projector(tmp_path / "mlp.gguf", "mlp", read_header(demo_pair()[0]).n_embd)
    for seed, name in enumerate(("a.png", "b.png")):
        (tmp_path / name).write_bytes(png(400, 300, seed=seed))  # 360 KB
    Image.frombytes("RGB", (900, 900), random.Random(1).randbytes(3 * 900 * 900)).save(tmp_path / "c.png")  # 2.4 MB
    with served({"max_body": 0.6}, chat_template=TEMPLATE, mmproj=file, n_parallel=1) as s:
        tab.bodies.clear()
        opened(tab, s.url)
        tab.drop("#ask", tmp_path / "a.png", tmp_path / "b.png")
        wait_for(tab, "a.png", "b.png")
        ask(tab, "What is it?", most=2)
        tab.wait(f"/^With this message .* MiB, and the server takes 0.6 MiB .--max-body.; remove .*[.]$/.test({NOTE})")
        assert tab.js(f"[{SHOWN}.length, document.querySelector('#ask').value]") == [2, "What is it?"]
        for _ in range(2):
            tab.click("#pictures li:nth-child(1) button")
        wait_for(tab)
        tab.drop("#ask", tmp_path / "c.png")
        wait_for(tab, "c.png")
        tab.js("document.querySelector('#ask').focus()")
        tab.press("Enter")
        tab.wait(ENDED)
        assert tab.js(NOTE) is None and tab.js("document.querySelector('.note.bad')") is None
        assert [len(b["messages"]) for b in tab.bodies if "messages" in b] == [1]
        assert 100 < max(seen_by_model(tab, 1)[0].size) < 900
        tab.open("about:blank#")


def test_a_message_that_a_proxy_refuses_comes_back(page: Browser) -> None:
    page.js("document.querySelector('#ask').focus()")
    page.paste(png(), "mine.png", "image/png")
    wait_for(page, "mine.png")
    page.answer_instead(CHAT, stream_of({"error": {"code": 413, "message": "Too large."}}))
    ask(page, "What is it?", most=2)
    page.wait("document.querySelector('.note.bad')?.textContent.startsWith('Too large.')")
    wait_for(page, "mine.png")
    assert page.js("document.querySelector('#ask').value") == "What is it?"
