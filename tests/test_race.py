"""`duo race`: the target alone and the pair write the same text; what is shown, and what is counted."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console
from sizes import mostly_daily
from terminals import rest_of, terminal

from duo import Duo
from duo.benchmark import race
from duo.benchmark.race import Lane, Outcome, TimedToken
from duo.cli.commands.race import lines_of
from duo.cli.race_screen import Screen
from duo.models.demo import demo_pair
from duo.support.other_load import Moment, other_cores

ROOT = Path(__file__).parents[1]
TARGET, DRAFT = map(str, demo_pair())
PAIR = ["-m", TARGET, "-md", DRAFT, "-c", "512", "-n", "40"]
# It speculates whether that pays or not, so that green tokens do not depend on the machine's load.
GUESSING = ["--mode", "sync", "--draft", "4", "--temp", "0"]

Run = Callable[..., tuple[int, str, str]]


def lane(name: str, *pieces: tuple[float, str, bool], tokens: tuple[int, ...] = ()) -> Lane:
    return Lane(name, "", "done", pieces=[TimedToken(*p) for p in pieces], tokens=tokens or tuple(range(len(pieces))))


def test_the_ratio_is_of_tokens_per_second() -> None:
    slow = lane("plain", (0.5, "a", False), (2.0, "b", False))
    fast = lane("async", (0.25, "a", False), (0.5, "b", True))
    assert Outcome(slow, fast).ratio == pytest.approx(4)
    assert Outcome(slow, fast).same and Outcome(slow, fast).n_same == 2
    assert (slow.per_second, fast.n_guessed, fast.text) == (1.0, 1, "ab")
    assert [slow.n_at(s) for s in (0.0, 0.5, 1.9, 2.0)] == [0, 1, 1, 2]
    longer = lane("async", (1.0, "a", False), (2.0, "c", False), (3.0, "d", False), tokens=(0, 7, 8))
    assert Outcome(slow, longer).ratio == pytest.approx(1)  # 3 tokens in 3 s
    assert not Outcome(slow, longer).same and Outcome(slow, longer).n_same == 1


def test_another_text_of_other_kernels_is_explained() -> None:
    """The target alone may be fastest on stock kernels, and a pair on duo's."""
    alone, pair = lane("plain", (1.0, "a", False)), lane("async", (1.0, "b", False), tokens=(7,))
    alone.kernels = pair.kernels = "duo kernels"
    assert [*lines_of(Outcome(alone, pair), each_text=False)][1:] == []  # a fault, and no excuse
    alone.kernels = "stock kernels"
    result, why = lines_of(Outcome(alone, pair), each_text=False)
    assert result.endswith("same text: no, from token 1 on")
    assert why.startswith("The target ran on stock kernels alone and on duo kernels with the draft")
    pair.tokens = alone.tokens
    assert len([*lines_of(Outcome(alone, pair), each_text=False)]) == 1


def test_times_are_those_of_the_engine_and_the_text_is_whole() -> None:
    looks = []
    written = Lane("async", "")
    with Duo(TARGET, DRAFT, n_ctx=512) as d:
        begin = time.monotonic()
        stream = written.write(
            lambda: d.stream("Once upon a time", max_tokens=30, temperature=0), lambda: looks.append(written.n_tokens)
        )
        end = time.monotonic()
        again = d.generate("Once upon a time", max_tokens=30, temperature=0, mode="plain")
    assert written.text == stream.result.text == again.text
    assert written.tokens == again.tokens and written.n_tokens == 30
    times = [p.at_s for p in written.pieces]
    assert times == sorted(times) and times[0] > 0 and times[-1] <= end - begin
    assert written.stopwatch == written.seconds == times[-1]
    assert looks == sorted(looks) and len(looks) >= 30
    # The engine's own figure counts from the first token to the end.
    assert written.timings is not None
    assert times[-1] - times[0] - 1e-5 <= written.timings["predicted_ms"] / 1e3 <= end - begin


def test_without_a_terminal_there_is_a_line_for_each_text(run: Run) -> None:
    code, out, err = run("race", *PAIR, *GUESSING, "--json")
    assert code == 0
    *_, plain, sync, last = (line for line in err.splitlines() if not line.startswith("duo: "))
    assert re.fullmatch(r"plain: 40 tokens in \d+\.\d\d s, \d+\.\d tokens/s", plain)
    assert re.fullmatch(r"sync: 40 tokens in \d+\.\d\d s, \d+\.\d tokens/s, \d+ of them guessed by the draft", sync)
    assert re.fullmatch(r"sync wrote .* times as many tokens per second as plain \(.*\); same text: yes", last)
    assert "\x1b" not in out + err
    assert "plain decoding: --mode plain" in err.splitlines()[0] and "sync, draft length 4" in err.splitlines()[1]
    got = json.loads(out)
    alone, pair = got["alone"], got["pair"]
    assert got["same_text"] and got["same_tokens"] == 40
    assert "kernels" in alone["kernels"] and "kernels" in pair["kernels"]
    assert got["ratio"] == pytest.approx(pair["tokens_per_s"] / alone["tokens_per_s"])
    assert [p[1] for p in alone["pieces"]] == [p[1] for p in pair["pieces"]]
    assert alone["guessed"] == 0 < pair["guessed"] == sum(p[2] for p in pair["pieces"])
    assert "draft_n" not in alone["timings"] and pair["timings"]["draft_n"] > 0
    assert alone["seconds"] == pytest.approx(alone["pieces"][-1][0], abs=1e-5)


def test_both_texts_have_one_seed_and_it_can_be_chosen(run: Run) -> None:
    texts = []
    for seed in ("1", "1", "2", "-1"):
        code, out, _ = run("race", *PAIR, "-n", 20, "-p", "Hello", "-s", seed, "--strict", "--json")
        got = json.loads(out)
        assert code == 0 and got["same_text"]
        texts.append("".join(p[1] for p in got["pair"]["pieces"]))
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--mode", "plain"], "--mode plain would race against itself"),
        (["-m", TARGET], "a race needs a draft, and none was given; give it with -md"),
        (["-md", DRAFT], "a draft was given without a target"),
        (["-p", ""], "the prompt is empty"), (["-p", "a", "-f", "b"], "both -p and -f"),
        (["--prompt-cache", "x"], "--prompt-cache is an option of duo run"),
        ([*PAIR, "-m", "no.gguf"], "there is no file no.gguf"), ([*PAIR, "-c", "10"], "the context holds 10"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_in_one_sentence(run: Run, args: list[str], why: str) -> None:
    code, out, err = run("race", *args)
    assert (code, out) == (1, "")
    assert why in err and err.startswith("duo: ")


# ---- the screen


def shown(
    *args: str, env: dict[str, str] | None = None, interrupt_at: str = "", errors: Path | None = None
) -> tuple[int, str]:
    """What a terminal of 100 columns and 40 lines gets. errors: a file for standard error."""
    to = "" if errors is None else f"2> {shlex.quote(str(errors))}"
    with terminal("race", *PAIR, *args, env=env, to=to) as child:
        data = ""
        if interrupt_at:
            child.expect_exact(interrupt_at)
            data = child.before + child.after
            child.sendintr()
        code, rest = rest_of(child)
    return code, data + rest


def plain_text(data: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data)


def test_a_terminal_shows_two_columns() -> None:
    code, data = shown(*GUESSING)
    assert code == 0
    assert "\x1b[32m" in data
    text = plain_text(data)
    last = text.rpartition("Once upon a time there was a little tin soldier who")[2]
    assert "╭─ plain: the target alone ─" in last and "╭─ sync: target and draft ─" in last
    assert len(re.findall(r"done after \d+\.\d s: 40 tokens, \d+\.\d tokens/s ─╯", last)) == 2
    rows = [re.findall(r"│ (.*?) *│", row) for row in last.splitlines() if row.startswith("│")]
    assert len(rows) > 3 and all(left == right for left, right in rows)
    assert re.search(r"sync wrote \d+\.\d\d times as many .*; same text: yes\r?\n", text)
    assert data.count("\x1b[?25l") == data.count("\x1b[?25h") == 1  # the cursor is back


@pytest.mark.daily  # test_cli has such terminals
@pytest.mark.full
@pytest.mark.parametrize(
    "env", mostly_daily([{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"COLUMNS": "30"}], [{"TERM": "dumb"}]), ids=str
)
def test_terminals_that_cannot_show_it(env: dict[str, str]) -> None:
    code, data = shown(*GUESSING, env=env)
    assert code == 0 and "same text: yes" in " ".join(plain_text(data).split())
    assert "\x1b[32m" not in data
    assert ("╭─" in data) == ("NO_COLOR" in env)


@pytest.mark.daily
def test_messages_go_to_the_file_that_the_user_named(tmp_path: Path) -> None:
    code, data = shown(*GUESSING, errors=tmp_path / "errors")
    said = (tmp_path / "errors").read_text()
    assert code == 0 and "╭─" in data and "draft length 4" not in plain_text(data)
    assert said.count("\n") >= 2 and "plain decoding: --mode plain" in said and "sync, draft length 4" in said
    assert "\x1b" not in said


def test_ctrl_c_ends_it_in_an_orderly_way() -> None:
    code, data = shown("-n", "480", "--ignore-eos", interrupt_at="tokens/s")
    assert code == 130
    assert "Traceback" not in data and "same text" not in data
    assert data.count("\x1b[?25l") == data.count("\x1b[?25h") == 1


def drawn(alone: Lane, pair: Lane, *, height: int = 30) -> str:
    out = io.StringIO()
    console = Console(file=out, width=60, height=height, force_terminal=True, color_system="standard")
    console.print(Screen(console, "Once", (alone, pair)).picture())
    return out.getvalue()


def test_the_first_text_is_dim_beyond_what_it_had_at_this_time() -> None:
    alone = lane("plain", *((float(i), f"w{i} ", False) for i in range(1, 6)))
    pair = lane("async", (0.5, "w1 ", False), (1.0, "w2 ", True))
    pair.state, pair.began = "writes", time.monotonic() - 3.5
    text = drawn(alone, pair)
    assert "3.5 s: 3 of 5 tokens" in text
    assert re.search(r"w1 w2 w3 (\x1b\[0m)?\x1b\[2mw4", text)
    assert "\x1b[32mw2" in text
    pair.state = "done"  # after one second, at which the other had one token
    assert re.search(r"w1 (\x1b\[0m)?\x1b\[2mw2", drawn(alone, pair))


def test_a_long_text_is_scrolled_to_what_is_new() -> None:
    alone = lane("plain", *((float(i), f"left{i:03} ", False) for i in range(1, 301)))
    pair = lane("async", *((i / 10, f"right{i:03} ", False) for i in range(1, 301)))
    text = drawn(alone, pair)
    assert "left030" in text and "left300" not in text and "right300" in text and "right001" not in text
    pair.state, pair.began, pair.pieces = "writes", time.monotonic() - 12.5, pair.pieces[:120]
    text = drawn(alone, pair)
    assert "right120" in text and "left012" in text and "left300" not in text
    assert max(map(len, plain_text(text).splitlines())) <= 60 and text.count("\n") <= 30


# ---- what other programs do meanwhile


def test_cores_of_other_programs(tmp_path: Path) -> None:
    file, hz = tmp_path / "stat", os.sysconf("SC_CLK_TCK")
    line = "cpu  {} 0 0 999999 7 0 0 {} 0 0\ncpu0 1 2 3\n"
    file.write_text(line.format(100 * hz, 0))
    before = Moment.now(file)
    file.write_text(line.format(103 * hz, hz))  # three seconds of programs, one of other machines
    after = Moment.now(file)
    assert (before.all_programs, after.all_programs) == (100, 104)
    assert other_cores(Moment(0, 100, 5), Moment(2, 104, 6)) == pytest.approx(1.5)
    assert other_cores(Moment(0, 100, 5), Moment(2, 101, 9)) == 0
    file.write_text("no such line")
    for unknown in (Moment.now(file), Moment.now(tmp_path / "none")):
        assert unknown.all_programs is None and other_cores(before, unknown) is None


def test_a_busy_machine_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([0.1, 1.26, 0.1, 0.2])
    monkeypatch.setattr(race, "other_cores", lambda *_: next(found))
    args = ["race", *PAIR, *GUESSING, "-n", 8]
    said = "other programs used 0.1 cores during plain and 1.3 cores during sync, so the ratio is not that of a quiet"
    assert said in run(*args)[2]
    assert "other programs" not in run(*args)[2]


# ---- the recorded picture


def test_the_picture_shows_both_texts_and_who_guessed(run: Run, tmp_path: Path) -> None:
    recorded, svg = tmp_path / "race.json", tmp_path / "race.svg"
    out = run("race", *PAIR, *GUESSING, "-p", 'Once & "twice" <thrice>', "--json")[1]
    recorded.write_text(out)
    subprocess.run([sys.executable, ROOT / "tools/race_svg.py", recorded, svg], check=True)
    root = ElementTree.parse(svg).getroot()
    xml = "{http://www.w3.org/2000/svg}"
    got = json.loads(out)
    words = [(t.text or "", t.get("class")) for t in root.iter(f"{xml}tspan") if t.find(f"{xml}animate") is not None]
    pieces = [*got["alone"]["pieces"], *got["pair"]["pieces"]]
    bare = re.compile(r"\s")
    assert bare.sub("", "".join(w for w, _ in words)) == bare.sub("", "".join(p[1] for p in pieces))
    green = "".join(w for w, kind in words if kind == "g")
    assert bare.sub("", green) == bare.sub("", "".join(p[1] for p in pieces if p[2]))
    for animation in root.iter(f"{xml}animate"):
        times = [float(t) for t in animation.get("keyTimes", "").split(";")]
        assert times == sorted(times) and times[0] == 0 and times[-1] <= 1
        assert len(times) == len(animation.get("values", "").split(";"))
    assert f"{got['ratio']:.2f} times" in "".join(root.itertext())


def test_the_picture_in_the_readme_is_small() -> None:
    assert (ROOT / "docs/race.svg").stat().st_size < 200_000
    ElementTree.parse(ROOT / "docs/race.svg")
