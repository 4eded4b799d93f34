"""Several texts at once on the demo pair: each has the tokens that it has alone."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from company import PROMPTS
from conftest import HANG_S
from sizes import mostly_daily
from waits import wait_until

from duo import Duo, DuoError, Result
from duo.cli import prompt_lines
from duo.cli.main import main
from duo.errors import BadValueError, BusyError, CancelledError
from duo.generation import many

ENDLESS: dict[str, Any] = {"max_tokens": -1, "context_shift": True, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def four() -> Iterator[Duo]:
    with Duo(n_ctx=2048, n_parallel=4) as d:
        yield d


@pytest.fixture(scope="module")
def alone() -> Iterator[Duo]:
    with Duo(n_ctx=2048) as d:
        yield d


def test_generate_many_keeps_the_order(four: Duo, alone: Duo) -> None:
    seen: list[int] = []
    found = four.generate_many(PROMPTS, max_tokens=24, temperature=0, progress=lambda i, r: seen.append(i))
    assert sorted(seen) == list(range(len(PROMPTS)))
    assert [r.text for r in found] == [alone.generate(p, max_tokens=24, temperature=0).text for p in PROMPTS]
    with pytest.raises(BadValueError):
        four.generate_many(["a", "b", "x" * 100_000], max_tokens=4)
    assert len(four.generate_many([], max_tokens=4)) == 0


def test_ctrl_c_ends_the_texts_of_generate_many(four: Duo, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(running: object, **_: object) -> None:
        wait_until(lambda: len(four.session.turns.owners) == 4)
        raise KeyboardInterrupt

    monkeypatch.setattr(many, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        four.generate_many(PROMPTS[:5], **ENDLESS)
    assert not four.session.turns.owners


def test_ctrl_c_ends_what_waits_for_the_turns_of_others(four: Duo, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(running: object, **_: object) -> None:
        wait_until(lambda: len(four.session.turns._queue) == 4)
        raise KeyboardInterrupt

    monkeypatch.setattr(many, "wait", interrupted)
    with ExitStack() as streams:
        for prompt in PROMPTS[:4]:
            streams.enter_context(four.stream(prompt, **ENDLESS))
        with pytest.raises(KeyboardInterrupt):
            four.generate_many(PROMPTS[:5], **ENDLESS)
        assert len(four.session.turns.owners) == 4 and not four.session.turns._queue


def test_ctrl_c_after_an_error_of_a_text_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    interrupts = [KeyboardInterrupt()]

    class Interrupted(many.ThreadPoolExecutor):
        def shutdown(self, *_: Any, **__: Any) -> None:
            if interrupts:
                raise interrupts.pop()
            super().shutdown()

    def write(prompt: str) -> bool:
        if prompt == "bad":
            raise BadValueError(prompt)
        return stopped.wait(HANG_S)

    monkeypatch.setattr(many, "ThreadPoolExecutor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(many.as_they_end(write, ["bad", "long"], 2, stopped.set))
    assert stopped.is_set()


def test_an_exception_of_progress_ends_the_texts_of_generate_many(four: Duo) -> None:
    short = four.tokenize(PROMPTS[0])

    def full(_i: int, _r: Result) -> None:
        raise OSError

    with pytest.raises(OSError):
        four.generate_many(
            PROMPTS[:4], progress=full, stopping_criteria=lambda ids, _: list(ids[: len(short)]) == short, **ENDLESS
        )
    assert not four.session.turns.owners


def test_tasks_write_at_once(four: Duo, alone: Duo) -> None:
    async def all_of_them() -> list[Result]:
        return await asyncio.gather(*(four.agenerate(p, max_tokens=20, temperature=0) for p in PROMPTS))

    found = asyncio.run(all_of_them())
    assert [r.text for r in found] == [alone.generate(p, max_tokens=20, temperature=0).text for p in PROMPTS]


def test_one_thread_reads_several_streams(four: Duo, alone: Duo) -> None:
    streams = [four.stream(p, max_tokens=16, temperature=0) for p in PROMPTS[:4]]
    with pytest.raises(BusyError):
        four.stream(PROMPTS[4], max_tokens=4)  # this thread would wait for itself
    open_ones = list(streams)
    while open_ones:
        open_ones = [s for s in open_ones if next(s, None) is not None]
    assert [s.result.text for s in streams] == [
        alone.generate(p, max_tokens=16, temperature=0).text for p in PROMPTS[:4]
    ]


def test_cancelling_one_disturbs_none(four: Duo, alone: Duo) -> None:
    streams = [four.stream(p, max_tokens=40, temperature=0) for p in PROMPTS[:4]]
    for s in streams[:2]:
        next(s)
        s.close()
    rest = ["".join(c.text for c in s) for s in streams[2:]]
    assert rest == [alone.generate(p, max_tokens=40, temperature=0).text for p in PROMPTS[2:4]]


def test_a_full_cache_puts_texts_back(alone: Duo) -> None:
    with Duo(n_ctx=160, n_parallel=4) as d:
        found = d.generate_many(PROMPTS, max_tokens=64, temperature=0, ignore_eos=True)
    with Duo(n_ctx=160) as one:
        want = [one.generate(p, max_tokens=64, temperature=0, ignore_eos=True) for p in PROMPTS]
    assert [r.tokens for r in found] == [r.tokens for r in want]


@pytest.mark.parametrize("late", mostly_daily([0, 0.001, 0.003, 0.01, 0.03, 0.1], [0, 0.01, 0.1]))
def test_closing_ends_all(late: float) -> None:
    d = Duo(n_ctx=512, n_parallel=3)
    ended: list[str] = []

    def read(prompt: str) -> None:
        try:
            d.generate(prompt, max_tokens=400, ignore_eos=True)
            ended.append("whole")
        except DuoError as e:
            ended.append(e.code)

    threads = [threading.Thread(target=read, args=(p,), daemon=True) for p in PROMPTS[:6]]
    for t in threads:
        t.start()
    time.sleep(late)
    d.close()
    for t in threads:
        t.join(HANG_S)
    assert not any(t.is_alive() for t in threads)
    assert len(ended) == 6 and set(ended) <= {"cancelled", "whole"}


@pytest.mark.parametrize("n", [0, 17, -1, "two"])
def test_bad_numbers_are_refused(n: Any) -> None:
    with pytest.raises(BadValueError, match="n_parallel"):
        Duo(n_parallel=n)


@pytest.mark.parametrize("small", [{"n_batch": 8}, {"n_ctx": 8}])
def test_a_pass_that_is_too_small_is_refused(small: dict[str, int]) -> None:
    with pytest.raises(BadValueError, match="too small for 16 texts; lower -np/--parallel, or raise -b/--batch-size"):
        Duo(n_parallel=16, **small)


# ---- the program


def test_a_line_for_each_prompt_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str], alone: Duo) -> None:
    file = tmp_path / "prompts.jsonl"
    lines = [json.dumps({"prompt": PROMPTS[0]}), json.dumps(PROMPTS[1]), "", json.dumps({"turns": [PROMPTS[2], "x"]})]
    file.write_text("\n".join(lines))
    assert main(["-f", str(file), "-np", "3", "-n", "12", "--temp", "0", "-c", "512"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [x["index"] for x in found] == [0, 1, 2]
    assert [x["prompt"] for x in found] == PROMPTS[:3]
    assert [x["text"] for x in found] == [alone.generate(p, max_tokens=12, temperature=0).text for p in PROMPTS[:3]]
    assert all(x["timings"]["predicted_n"] == 12 for x in found)


def test_a_text_that_fails_stops_no_other_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(json.dumps(p) for p in [PROMPTS[0], "x " * 900, PROMPTS[1], PROMPTS[2]]))
    assert main(["-f", str(file), "-np", "2", "-n", "12", "--temp", "0", "-c", "256"]) == 1
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in out.splitlines()]
    assert [x["index"] for x in found] == [0, 1, 2, 3]
    assert [x.get("code") for x in found] == [None, "context_full", None, None]
    assert "shorten it" in found[1]["error"]
    assert "1 of 4 texts failed" in err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no prompts"),
        ("{", "line 1"),
        ('"a"\n{}', "line 2"),
        ('{"prompt": 3}', "no prompt"),
        ('""', "no prompt"),
    ],
)
def test_bad_lines_are_named(text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(text)
    assert main(["-f", str(file)]) == 1
    assert why in capsys.readouterr().err


def test_one_json_object_is_not_for_several_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('"a"\n')
    assert main(["-f", str(file), "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "a .jsonl file gives a line of JSON for each text; leave --json out" in err


def test_ctrl_c_stops_the_texts_and_writes_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first text does not end, and two others have."""
    stopped = threading.Event()
    done = Result("text", (), (), "stop")

    def generate(prompt: str) -> Result:
        if prompt == "endless":
            assert stopped.wait(HANG_S)
            raise CancelledError("this Duo was closed")
        return done

    @contextmanager
    def keyboard(_: str) -> Iterator[Callable[..., None]]:
        def show(_: str, n_done: int, _of: int) -> None:
            if n_done == 2:
                raise KeyboardInterrupt

        yield show

    monkeypatch.setattr(prompt_lines, "progress", keyboard)
    d: Any = SimpleNamespace(generate=generate, close=stopped.set, session=SimpleNamespace(turns=SimpleNamespace(n=2)))
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        prompt_lines.write_all(d, ["endless", "a", "b", "c"], {}, out)
    assert stopped.is_set()
    assert [json.loads(line)["index"] for line in out.getvalue().splitlines()] == [1, 2]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_lines_keep_all_characters(encoding: str) -> None:
    d: Any = SimpleNamespace(generate=lambda prompt: Result(prompt + "\N{SNOWMAN}", (), (), "stop"),
                             session=SimpleNamespace(turns=SimpleNamespace(n=1)))  # fmt: skip
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding, errors="replace")
    prompt_lines.write_all(d, ["Gr\u00fcn"], {}, out)
    line = raw.getvalue().decode(encoding)
    assert json.loads(line)["text"] == "Gr\u00fcn\N{SNOWMAN}"
    assert ("\N{SNOWMAN}" in line) == (encoding == "utf-8")  # people read it
