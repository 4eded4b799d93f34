"""A headless Chromium for tests, spoken to in its DevTools protocol over two pipes. Needs no package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from needs import need_program

ANSWER_S = 60
N_LOOKS = 2500
OPTIONS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--disable-default-apps", "--mute-audio", "--hide-scrollbars", "--lang=en",
)  # fmt: skip
KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "ArrowRight": (39, ""), "ArrowLeft": (37, ""),
        "Space": (32, " ")}  # fmt: skip


def program() -> str:
    return need_program("browser", "chromium", "chromium-browser", "google-chrome")


class Browser:
    """One tab. Whatever its console says is kept."""

    def __init__(self, process: subprocess.Popen[bytes], write_to: int, read_from: int) -> None:
        self._process, self._write_to, self._read_from = process, write_to, read_from
        self._rest = b""
        self._n = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.bodies: list[dict[str, Any]] = []  # of requests
        self._answer = b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.call(f"{domain}.enable")

    # ---- protocol

    def _send(self, method: str, **params: Any) -> int:
        self._n += 1
        asked = {"id": self._n, "method": method, "params": params}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._write_to, json.dumps(asked).encode() + b"\0")
        return self._n

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = self._send(method, **params)
        until = time.monotonic() + ANSWER_S
        while (found := self._read(until)).get("id") != number:
            self._hear(found)
        assert "error" not in found, (method, found["error"])
        result: dict[str, Any] = found["result"]
        return result

    def _read(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._read_from], [], [], max(0.0, until - time.monotonic()))[0], "no answer"
            data = os.read(self._read_from, 1 << 16)
            assert data, f"the browser has ended ({self._process.poll()})"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _hear(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:500])
        elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"])[:500])
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif event.get("method") == "Network.requestWillBeSent" and "postData" in params["request"]:
            self.bodies.append(json.loads(params["request"]["postData"]))
        elif event.get("method") == "Fetch.requestPaused":
            headers = [{"name": "Content-Type", "value": "text/event-stream"}]
            body = base64.b64encode(self._answer).decode()
            self._send("Fetch.fulfillRequest", requestId=params["requestId"], responseCode=200, responseHeaders=headers,
                       body=body)  # fmt: skip

    def answer_instead(self, path: str, body: bytes) -> None:
        """From now on the server is not asked for this path."""
        self._answer = body
        self.call("Fetch.enable", patterns=[{"urlPattern": f"*{path}"}])

    # ---- what a test does

    def open(self, url: str) -> None:
        """A page with nothing in its storage."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def js(self, expression: str) -> Any:
        """Its value."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, (expression, found["exceptionDetails"])
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until it is true. Looks are counted, not seconds: the machine may stand still for a while."""
        for _ in range(N_LOOKS):
            if self.js(f"Boolean({condition})"):
                return
            time.sleep(0.02)
        pytest.fail(f"{condition}: {self.js('document.body?.innerText.slice(0, 2000)')} {self.complaints}")

    def type(self, text: str) -> None:
        """Where the focus is."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        code, text = KEYS[key]
        name = " " if key == "Space" else key
        more = {"key": name, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 * shift}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def click(self, selector: str) -> None:
        """As a mouse does: in the middle of what is seen there."""
        at = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'nearest', "
            "inline: 'nearest'}); const r = e.getBoundingClientRect(); "
            "return [r.x + r.width / 2, r.y + r.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def drop(self, selector: str, *files: Path) -> None:
        """As a mouse that brings files from another program."""
        at = self.js(
            f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); "
            "return [r.x + r.width / 2, r.y + r.height / 2] })()"
        )
        data = {"items": [], "files": [str(f) for f in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=at[0], y=at[1], data=data)

    def choose(self, selector: str, *files: Path) -> None:
        """In the dialog of an input for files."""
        found = self.call("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")["result"]
        self.call("DOM.setFileInputFiles", objectId=found["objectId"], files=[str(f) for f in files])

    def paste(self, data: bytes, name: str, kind: str) -> None:
        """A file from the clipboard, where the focus is."""
        text = base64.b64encode(data).decode()
        self.js(
            "(async () => { const t = new DataTransfer(); "
            f"const data = Uint8Array.from(atob({json.dumps(text)}), (c) => c.charCodeAt(0)); "
            f"t.items.add(new File([data], {json.dumps(name)}, {{type: {json.dumps(kind)}}})); "
            "document.activeElement.dispatchEvent(new ClipboardEvent('paste', "
            "{clipboardData: t, bubbles: true, cancelable: true})); })()"
        )

    def size(self, width: int, height: int, *, phone: bool = False, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )

    def prefer(self, scheme: str) -> None:
        """dark or light"""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browsing() -> Iterator[Browser]:
    """Skips where no Chromium is installed."""
    name = program()
    folder = tempfile.mkdtemp(prefix="duo-browser-")
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # The program reads from descriptor 3 and writes to 4.
    line = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    command = ["bash", "-c", line, name, *OPTIONS, f"--user-data-dir={folder}"]
    with open(Path(folder) / "log", "wb") as log:
        ends = (theirs_in, theirs_out)
        process = subprocess.Popen(command, pass_fds=ends, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        browser = Browser(process, ours_out, ours_in)
        yield browser
    finally:
        with suppress(OSError):
            os.close(ours_out)  # its end
        try:
            process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(ANSWER_S)
        os.close(ours_in)
        shutil.rmtree(folder, ignore_errors=True)


# The page of `duo serve`.


def opened(tab: Browser, url: str) -> None:
    tab.open("about:blank#")
    tab.open(url + "/")
    tab.wait("document.querySelector('input[name=mode]:checked') !== null")


def ask(page: Browser, text: str, *, most: int = 48) -> None:
    page.js(f"document.querySelector('#most').value = {most}; document.querySelector('#temperature').value = 0")
    page.js("document.querySelector('#ask').focus()")
    page.type(text)
    page.press("Enter")


def take_turns(page: Browser) -> None:
    """The draft guesses before each pass, however busy the machine is."""
    page.click("input[name=mode][value=sync]")
    page.click("input[name=length][value='3']")


def stream_of(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)


def delta(content: str, *tokens: tuple[str, bool], **more: Any) -> dict[str, Any]:
    told = [{"id": 1, "text": text, "from_draft": drafted} for text, drafted in tokens]
    choice = {"index": 0, "delta": {"content": content, **more}, "finish_reason": None}
    return {"choices": [choice], "duo": {"tokens": told}}


# JavaScript: the answer is complete.
ENDED = "document.querySelector('.answer') && !document.querySelector('.answer.writes')"
