"""Pictures with a draft: texts equal plain's in every mode, and the caches know pictures by their hash."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import EXACT, HELD
from gguf_files import rewrite
from gpu_device import NAMES
from hub_server import REPO, FakeHub, run_duo
from sizes import mostly_daily
from vision_models import KINDS, mrope_model, png, projector
from waits import in_threads

from duo import BadValueError, Duo, DuoError
from duo.chat.pictures import url_of
from duo.conversation import Conversation
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement.devices import devices
from duo.placement.projector_device import projector_device

PROMPT = "Once upon a time <__media__> there was a dog who saw <__media__> and said"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
PAIR: dict[str, Any] = {"n_ctx": 1024, "n_ctx_draft": 1024, "n_threads": 1, "n_threads_draft": 1, **EXACT}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


def made(folder: Path, kind: str, **options: Any) -> Duo:
    """The demo pair with a projector; positions of several parts need another target."""
    target, draft = demo_pair()
    n_text = 256 if kind == "qwen2vl_merger" else 0
    if n_text:
        target = mrope_model(folder / "target.gguf")
    file = projector(folder / f"{kind}.gguf", kind, n_text or read_header(target).n_embd)
    return SwitchedDuo(target, draft, mmproj=file, **{**PAIR, **HELD, **options})


@pytest.fixture(scope="module", params=mostly_daily(KINDS, ("gemma3", "qwen2vl_merger")))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Duo]:
    with made(tmp_path_factory.mktemp("pictures"), request.param, n_parallel=3) as d:
        yield d


@pytest.fixture(scope="module")
def seer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Duo]:
    with made(tmp_path_factory.mktemp("seer"), "mlp", chat_template=TEMPLATE) as d:
        yield d


def test_texts_are_plains_in_every_mode(pair: Duo) -> None:
    pictures = [png(seed=1), png(90, 30, seed=2)]
    fresh = {"images": pictures, "cache_prompt": False, **GREEDY}
    plain = pair.generate(PROMPT, mode="plain", **fresh)
    assert plain.prompt_tokens > 8 + 2 * 4
    for mode in ("sync", "async"):
        for how in ({}, {"n_draft": 4}, {"temperature": 0.8, "seed": 7}):
            wanted = plain if "seed" not in how else pair.generate(PROMPT, mode="plain", **{**fresh, **how})
            found = pair.generate(PROMPT, mode=mode, **{**fresh, **how})  # type: ignore[arg-type]
            assert found.tokens == wanted.tokens and not found.warning
            assert found.timings["draft_n"] > 0
    other = pair.generate(PROMPT, mode="plain", **{**fresh, "images": [png(seed=3), pictures[1]]})
    assert other.tokens != plain.tokens  # it sees


def test_a_picture_is_cached_by_what_it_shows(pair: Duo) -> None:
    asked = {"images": [png(seed=4), png(seed=5)], **GREEDY}
    first = pair.generate(PROMPT, **asked)
    again = pair.generate(PROMPT, **asked)
    assert again.tokens == first.tokens and again.timings["cache_n"] == first.prompt_tokens - 1
    other = {**asked, "images": [png(seed=4), png(seed=6)]}
    part = pair.generate(PROMPT, **other)  # up to the second picture
    assert 0 < part.timings["cache_n"] < first.prompt_tokens - 1
    assert part.tokens == pair.generate(PROMPT, cache_prompt=False, **other).tokens


def test_several_texts_at_once(pair: Duo) -> None:
    asked = [{"images": [png(seed=10 + i), png(seed=20 + i)], **GREEDY} for i in range(5)]
    wanted = [pair.generate(PROMPT, mode="plain", cache_prompt=False, **a).tokens for a in asked]
    found = in_threads(*(partial(pair.generate, PROMPT, cache_prompt=False, **a) for a in asked))
    assert [r.tokens for r in found] == wanted


@pytest.mark.parametrize("kind", mostly_daily(KINDS, ("gemma3", "qwen2vl_merger")))
def test_texts_with_pictures_are_kept_and_come_back(kind: str, tmp_path: Path) -> None:
    with made(tmp_path, kind, n_ctx=256, cache_ram=64) as d:
        asked = {"images": [png(seed=1), png(seed=2)], **GREEDY}
        long = PROMPT + " hello" * 40
        first = d.generate(long, **asked)
        d.generate("Another one. " * 20, **{**GREEDY, "max_tokens": 4})
        back = d.generate(long, **asked)  # from RAM
        assert back.tokens == first.tokens and back.timings["cache_n"] > 64
        state = d.save_state()
        d.generate("Something else", **{**GREEDY, "max_tokens": 4, "cache_prompt": False})
        d.load_state(state)
        assert d.generate(long, **asked).tokens == first.tokens


def test_penalties_and_ngrams_pass_over_pictures(seer: Duo) -> None:
    asked = {
        "images": [png(seed=1)] * 2, "repeat_penalty": 1.01, "repeat_last_n": -1, "dry_multiplier": 0.01, **GREEDY,
    }  # fmt: skip
    again = PROMPT + " and said" * 8
    plain = seer.generate(again, mode="plain", **asked)
    n_guessed = 0
    for kind in ("ngram-simple", "ngram-map-k4v"):
        found = seer.generate(again, spec_type=[kind], ngram_size_n=2, **asked)
        assert found.tokens == plain.tokens
        n_guessed += found.timings["draft_n"]
    assert n_guessed > 0


def test_what_is_no_picture_is_refused(seer: Duo, tmp_path: Path) -> None:
    for images, why in (
        ([b"<svg xmlns='...'/>"], "SVG"),
        ([png()[:100]], "damaged"),
        ([tmp_path / "no.png"], "cannot be read"),
        ([b"RIFF0000WEBP"], "no picture"),
    ):
        with pytest.raises(BadValueError, match=why):
            seer.generate("<__media__> Once", images=images)
    with pytest.raises(BadValueError, match="markers"):
        seer.generate("<__media__><__media__> Once", images=[png()])
    with pytest.raises(BadValueError, match="ends with a picture"):
        seer.generate("Once <__media__>", images=[png()])
    with Duo(n_ctx=64) as blind, pytest.raises(BadValueError, match="--mmproj"):
        blind.generate("Once", images=[png()])


def test_no_program_is_started_for_a_damaged_picture(
    seer: Duo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libmtmd asks ffprobe whether what stb_image does not read is a video."""
    ran = tmp_path / "ran"
    for name in ("ffprobe", "ffmpeg"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    subprocess.run(["ffprobe"], check=True)
    ran.unlink()  # it would be found
    head = struct.pack("<IHHI", 70, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, 3, 3, 1, 99, 9, 0, 0, 0, 0, 0)
    for file in (b"BM" + head + bytes(16), b"GIF89a" + struct.pack("<HH", 9, 9) + b"\0" * 20):
        with pytest.raises(BadValueError, match=r"picture 1 "):
            seer.generate("<__media__> Once", images=[file], max_tokens=1)
    assert not ran.exists()


def test_a_projector_that_computes_nan_is_named(tmp_path: Path) -> None:
    def spoilt(name: str, data: Any) -> Any:
        return np.full_like(data, np.nan) if name == "mm.2.bias" else data

    file = projector(tmp_path / "good.gguf", "mlp", read_header(demo_pair()[0]).n_embd)
    bad = rewrite(file, tmp_path / "bad.gguf", weights=spoilt)
    with Duo(mmproj=str(bad), n_ctx=512, n_threads=1) as d:
        with pytest.raises(DuoError) as e:
            d.generate("<__media__> Once", images=[png()], max_tokens=1)
        assert str(e.value) == f"the projector {bad} computes NaN or infinity for a picture; choose another file"


def test_a_chat_is_shown_pictures(seer: Duo) -> None:
    content = [
        {"type": "image_url", "image_url": {"url": url_of(png(seed=1))}},
        {"type": "text", "text": "What is it?"},
    ]
    asked = {"temperature": 0, "max_tokens": 12}
    answer = seer.create_chat_completion([{"role": "user", "content": content}], **asked)
    blind = seer.create_chat_completion([{"role": "user", "content": "What is it?"}], **asked)
    assert answer["usage"]["prompt_tokens"] > blind["usage"]["prompt_tokens"]
    assert answer["choices"][0]["message"] != blind["choices"][0]["message"]
    with pytest.raises(BadValueError, match="not fetched"):
        bad = [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}]
        seer.create_chat_completion([{"role": "user", "content": bad}])


def test_create_completion_shows_pictures(seer: Duo) -> None:
    asked: dict[str, Any] = {"images": [png(seed=1)] * 2, "temperature": 0, "max_tokens": 12}
    found = seer.create_completion(PROMPT, **asked)
    r = seer.generate(PROMPT, **asked)
    assert (found["choices"][0]["text"], found["usage"]["prompt_tokens"]) == (r.text, r.prompt_tokens)
    with pytest.raises(BadValueError, match="picture"):
        seer.create_completion(PROMPT, echo=True, logprobs=1, **asked)


@pytest.mark.daily
@pytest.mark.full
def test_the_projector_of_a_repository_comes_with_its_target(fake: FakeHub, tmp_path: Path) -> None:
    file = projector(tmp_path / "x.gguf", "mlp", read_header(demo_pair()[0]).n_embd)
    picture = tmp_path / "picture.png"
    picture.write_bytes(png(seed=1))
    args = ("-hf", REPO, "--image", str(picture), "-p", "<__media__> Once", "-n", "4", "-c", "256")
    r = run_duo(fake, tmp_path / "cache", *args)  # the repository's file is damaged
    assert r.returncode == 1 and "--mmproj" in r.stderr.splitlines()[-1]
    fake.repos[REPO]["mmproj-tales-Q4_K_M.gguf"] = file.read_bytes()
    r = run_duo(fake, tmp_path / "fresh", *args)
    assert r.returncode == 0 and r.stdout, r.stderr


def test_a_conversation_keeps_its_pictures(seer: Duo, tmp_path: Path) -> None:
    talk = Conversation(seer, seer.chat_template)
    talk.show(png(seed=1))
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 8}

    def said(question: str) -> str:
        with talk.ask(question, **options) as s:
            for _ in s:
                pass
        talk.answered(s.result)
        return s.result.text

    said("What is it?")
    n_first = talk.last.prompt_tokens if talk.last else 0
    said("And now?")
    assert talk.last is not None and talk.last.timings["cache_n"] >= n_first - 1
    talk.save(tmp_path / "talk.json")
    other = Conversation(seer, seer.chat_template)
    other.load(tmp_path / "talk.json")
    assert other.messages == talk.messages


def test_the_projector_beside_the_target_is_found(tmp_path: Path) -> None:
    from duo.models.projector import beside

    target = tmp_path / "x-Q8_0.gguf"
    assert beside(target) is None
    (tmp_path / "mmproj-x-bad.gguf").write_bytes(b"")
    assert beside(target) is None
    mine = projector(tmp_path / "mmproj-x-f16.gguf", "mlp", 8)
    assert beside(target) == mine
    projector(tmp_path / "mmproj-y-f16.gguf", "mlp", 8)
    assert beside(target) == mine
    mine.unlink()
    projector(tmp_path / "mmproj-z-f16.gguf", "mlp", 8)
    assert beside(target) is None  # they are other models'


def test_of_projectors_that_differ_in_their_types_alone_the_hubs_is_taken(tmp_path: Path) -> None:
    from duo.models.hub import head_files
    from duo.models.projector import beside

    names = ["mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf", "mmproj-Q8_0.gguf"]
    for name in names:
        projector(tmp_path / name, "mlp", 8)
    for model in ("x-Q8_0.gguf", "x-F16.gguf", "x-F32.gguf"):
        expected = head_files.find([model, *names], (head_files.PROJECTOR,), model, None)
        assert expected is not None and beside(tmp_path / model) == tmp_path / expected


@pytest.mark.parametrize("template", [None, "{% for m in messages %}USER: {{ m.content }}\n{% endfor %}ASSISTANT:"])
def test_a_handler_of_llama_cpp_gives_its_projector(tmp_path: Path, template: str | None) -> None:
    """As llama_cpp's MTMDChatHandler and Llava15ChatHandler (llama_chat_format.py): classes with these attributes."""
    target = demo_pair()[0]
    file = projector(tmp_path / "p.gguf", "mlp", read_header(target).n_embd)
    handler = type("Handler", (), {"__call__": lambda self: None, "clip_model_path": str(file), "use_gpu": False})()
    if template is not None:
        handler.CHAT_FORMAT = template
    content = [
        {"type": "image_url", "image_url": {"url": url_of(png(seed=1))}},
        {"type": "text", "text": "What is it?"},
    ]
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 8}
    options: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, **EXACT}
    own = {} if template is None else {"chat_template": template}
    with Duo(target, chat_handler=handler, **options) as a, Duo(target, mmproj=str(file), **own, **options) as b:
        found, wanted = (d.create_chat_completion(**asked) for d in (a, b))
        assert found["choices"] == wanted["choices"] and found["usage"]["prompt_tokens"] > 16
        with pytest.raises(BadValueError, match="when you load"):
            a.chat_handler = handler


def test_the_device_that_encodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, device in (({}, ""), ({"mmproj_device": "none"}, "none"), ({"device": "none"}, "none")):
        assert projector_device(ModelOptions.of(engine_options(options), "target"), devices()) == device
    assert projector_device(ModelOptions.of(engine_options({"device": "none"}), "draft"), devices()) == ""
    for name, why in (("CUDA7", "unknown device CUDA7"), ("none,none", "names 2 devices, but one encodes pictures")):
        with pytest.raises(BadValueError, match=why):
            projector_device(ModelOptions.of(engine_options({"mmproj_device": name}), "target"), devices())
    file = projector(tmp_path / "good.gguf", "mlp", read_header(demo_pair()[0]).n_embd)
    shown: dict[str, Any] = {"images": [png()], "temperature": 0, "max_tokens": 4}
    texts = []
    for options in ({}, {"mmproj_device": "none"}):
        with Duo(mmproj=str(file), n_ctx=512, n_threads=1, **options) as d:
            assert d.placed.projector.offload != bool(options)
            texts.append(d.generate("<__media__> Once", **shown).text)
    assert all(texts) and (NAMES or texts[0] == texts[1])  # a GPU rounds otherwise
    monkeypatch.setattr("duo.loaded_pair.projector_device", lambda *_: "CUDA7")
    with pytest.raises(BadValueError, match="unknown device CUDA7"):  # libmtmd gets the device of this name
        Duo(mmproj=str(file), n_ctx=512)
