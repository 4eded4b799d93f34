"""Sound in prompts, where the projector hears: texts equal plain's, and hostile files are refused."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import EXACT, HELD
from hearing_models import ROWS, hearing_projector, wav, wav_of
from served import TEMPLATE, Server, served
from vision_models import png

from duo import BadValueError, Duo
from duo.chat.pictures import part_of
from duo.conversation import Conversation
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.models.header import read_header

PROMPT = "Once upon a time <__media__> there was a dog who said"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
PAIR: dict[str, Any] = {"n_ctx": 1024, "n_ctx_draft": 512, "n_threads": 1, "n_threads_draft": 1, **EXACT}


def made(folder: Path, kind: str, **options: Any) -> Duo:
    target, draft = demo_pair()
    file = hearing_projector(folder / f"{kind}.gguf", kind, read_header(target).n_embd)
    return SwitchedDuo(target, draft, mmproj=file, **{**PAIR, **HELD, **options})


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Duo]:
    with made(tmp_path_factory.mktemp("sound"), "ultravox", chat_template=TEMPLATE) as d:
        yield d


@pytest.mark.full
@pytest.mark.parametrize(
    "kind", ["ultravox", *(pytest.param(k, marks=pytest.mark.daily) for k in ("voxtral", "qwen2a"))]
)
def test_texts_are_plains_in_every_mode(kind: str, tmp_path: Path) -> None:
    with made(tmp_path, kind) as d:
        asked = {"images": [wav()], "cache_prompt": False, **GREEDY}
        plain = d.generate(PROMPT, mode="plain", **asked)
        assert plain.prompt_tokens > ROWS[kind]
        for mode in ("sync", "async"):
            assert d.generate(PROMPT, mode=mode, **asked).tokens == plain.tokens  # type: ignore[arg-type]
        other = d.generate(PROMPT, mode="plain", **{**asked, "images": [wav(hertz=3000)]})
        assert other.tokens != plain.tokens  # it hears
        again = [d.generate(PROMPT, **{**asked, "cache_prompt": True}) for _ in range(2)]
        assert again[1].tokens == plain.tokens and again[1].timings["cache_n"] == plain.prompt_tokens - 1


def test_all_rates_sound_alike(listener: Duo) -> None:
    """miniaudio brings each file to the model's rate."""
    asked = {"cache_prompt": False, "mode": "plain", **GREEDY, "max_tokens": 4}
    for file in (wav(rate=16_000), wav(rate=44_100), wav(rate=8000)):
        assert listener.generate(PROMPT, images=[file], **asked).tokens


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (wav_of(b""), "shorter than|cannot be decoded"), (wav()[:40], "damaged"), (wav(0.05), "shorter than"),
        (wav_of(np.array([0, np.nan] * 4000, np.float32).tobytes(), kind=3, bits=32), "no numbers"),
        (wav_of(np.array([0, np.inf] * 4000, np.float32).tobytes(), kind=3, bits=32), "no numbers"),
        (wav_of(b"\0\0"), "shorter than"), (wav_of(b"\0" * 2000, rate=0), "header"),
        (b"ID3" + bytes(500), "sound 1"), (b"fLaC" + b"\xff" * 500, "sound 1"), (b"\xff\xfb" + bytes(500), "sound 1"),
        (wav_of(bytes(1_300_000), rate=2000), "longer than 5 minutes"),
        (b"fLaC" + bytes(34 << 20), "MiB"),
        (b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<I", 1 << 31), "no samples"),
    ],
    ids=range(13),
)  # fmt: skip
def test_hostile_sound_is_refused(listener: Duo, file: bytes, why: str) -> None:
    with pytest.raises(BadValueError, match=why) as e:
        listener.generate(PROMPT, images=[file], max_tokens=1)
    assert "\n" not in str(e.value)


def test_a_header_that_promises_too_much(listener: Duo) -> None:
    """What is there is read, or it is refused; the process lives."""
    for n in (0xFFFF_FFFE, 0x7FFF_FFFF, 40_000):
        try:
            listener.generate(PROMPT, images=[wav_of(b"\0\1" * 8000, n_said=n)], max_tokens=1)
        except BadValueError as e:
            assert "sound 1" in str(e)
    assert listener.generate(PROMPT, images=[wav()], max_tokens=1).tokens


def test_who_is_deaf_or_blind_says_so(listener: Duo) -> None:
    with pytest.raises(BadValueError, match="reads no pictures"):
        listener.generate(PROMPT, images=[png()])
    with Duo(n_ctx=64) as d, pytest.raises(BadValueError, match="hears nothing"):
        d.generate(PROMPT, images=[wav()])
    with pytest.raises(BadValueError, match="files of sound"):
        listener.generate("<__media__>" * 21 + " Once", images=[wav()] * 21)


def test_a_conversation_is_about_sound(listener: Duo) -> None:
    talk = Conversation(listener, listener.chat_template)
    talk.show(wav())
    with talk.ask("What is it?", temperature=0, max_tokens=4) as s:
        for _ in s:
            pass
    assert s.result.prompt_tokens > ROWS["ultravox"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    file = hearing_projector(folder / "u.gguf", "ultravox", read_header(demo_pair()[0]).n_embd)
    with served(chat_template=TEMPLATE, mmproj=file, n_ctx=1024) as s:
        yield s


def test_the_server_takes_input_audio(server: Server) -> None:
    assert server.get("/props").json()["modalities"] == {"vision": False, "audio": True}

    def asked(part: Any) -> Any:
        content = [{"type": "text", "text": "What is it?"}, part]
        body = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 8}
        return server.post("/v1/chat/completions", body)

    found = asked(part_of(wav())).json()
    assert found["usage"]["prompt_tokens"] > ROWS["ultravox"]
    data = base64.b64encode(wav()).decode()
    url = {"type": "input_audio", "input_audio": {"url": f"data:audio/wav;base64,{data}"}}
    assert asked(url).json()["choices"][0]["message"] == found["choices"][0]["message"]
    for bad in ({}, {"data": 7}, {"data": "***"}, {"data": base64.b64encode(wav()[:40]).decode(), "format": "wav"}):
        answer = asked({"type": "input_audio", "input_audio": bad})
        assert answer.status_code == 400 and "\n" not in answer.json()["error"]["message"]
    assert asked({"type": "input_audio", "input_audio": {"data": "file:///etc/passwd"}}).status_code == 400
