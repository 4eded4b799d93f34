"""`duo chat`, as a user with a terminal."""

import json
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from sizes import mostly_daily
from terminals import rest_of, terminal

from duo.cli.chat_history import N_HISTORY, ChatHistory
from duo.cli.chat_prompt import CommandCompleter
from duo.cli.chat_text import is_open, without_fences

pytestmark = pytest.mark.full

PROMPT = r"\x1b\[\?2004h[^>]*>"  # the terminal is told to mark what is pasted: keys are read from now on
READY = rf"/help lists the commands.*?{PROMPT}"
GREEN = "\x1b[32m"
GUESSES = ("--mode", "sync", "--draft", "4")  # always: by default a draft may rest
ENTER, CTRL_C, CTRL_D, ALT_ENTER, TAB = "\r", "\x03", "\x04", "\x1b\r", "\t"


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[pexpect.spawn]:
    """A chat that answers for long, at its prompt."""
    with terminal("chat", "--temp", "0", "-c", "512", "--ignore-eos", *GUESSES, env=home(tmp_path)) as child:
        child.expect(READY)
        yield child


def home(folder: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(folder), "HOME": str(folder)}


def history(folder: Path) -> list[str]:
    return list(ChatHistory(folder / "duo" / "chat_history").load_history_strings())[::-1]


def leave(child: pexpect.spawn) -> None:
    child.send(f"/exit{ENTER}")
    assert rest_of(child)[0] == 0


def asked(child: pexpect.spawn, typed: str, saved: Path) -> str:
    """What the model was asked. The answer is stopped."""
    child.send(typed)
    child.expect_exact(GREEN)  # the answer has begun, and what the draft guessed is green
    child.send(CTRL_C)
    child.expect(PROMPT)
    child.send(f"/save {saved}{ENTER}")
    child.expect("messages written")
    child.expect(PROMPT)
    return [m["content"] for m in json.loads(saved.read_text()) if m["role"] == "user"][-1]


def test_ctrl_c_stops_the_answer_and_not_the_program(chat: pexpect.spawn, tmp_path: Path) -> None:
    chat.send(f"Tell me the tale of the frog.{ENTER}")
    chat.expect_exact(GREEN)
    chat.send(CTRL_C)
    chat.expect(PROMPT)
    for _ in range(20):  # at once after the prompt
        chat.send(CTRL_C)
        chat.expect(PROMPT)
    chat.send(f"half a line{CTRL_C}")
    chat.expect(PROMPT)
    chat.send(f"/mode plain{ENTER}")
    chat.expect_exact("duo: mode plain")
    chat.send(f"/widget{ENTER}")
    chat.expect_exact("unknown command /widget")  # a mistake ends nothing here
    chat.expect(PROMPT)
    leave(chat)
    assert history(tmp_path) == ["Tell me the tale of the frog.", "/mode plain", "/widget", "/exit"]
    assert (tmp_path / "duo" / "chat_history").stat().st_mode & 0o077 == 0


@pytest.mark.daily  # so ends the test of TAB
def test_ctrl_d_at_an_empty_line_ends_it(chat: pexpect.spawn) -> None:
    chat.send(f"ab{CTRL_D}")  # deletes what is under the cursor: nothing
    chat.send(CTRL_C)
    chat.expect(PROMPT)
    chat.send(CTRL_D)
    assert rest_of(chat)[0] == 0


MODULE = '"""A module."""\nx = 1'


@pytest.mark.parametrize(("typed", "turn"), [
    (f"\x1b[200~def f():\n    return 1\\\n\x1b[201~{ENTER}", "def f():\n    return 1\\"),
    pytest.param(f"a{ALT_ENTER}b{ENTER}", "a\nb", marks=pytest.mark.daily),
    pytest.param(f"a\\{ENTER}b{ENTER}", "a\nb", marks=pytest.mark.daily),
    pytest.param(f'"""a{ENTER}/exit{ENTER}b"""{ENTER}', "a\n/exit\nb", marks=pytest.mark.daily),
    pytest.param(f"\x1b[200~{MODULE}\n\x1b[201~{ENTER}", MODULE, marks=pytest.mark.daily),
], ids=["pasted", "Alt-Enter", "backslash", "fences", "a pasted module"])  # fmt: skip
def test_turns_of_several_lines(chat: pexpect.spawn, tmp_path: Path, typed: str, turn: str) -> None:
    assert asked(chat, typed, tmp_path / "talk.json") == turn
    leave(chat)


@pytest.mark.daily
@pytest.mark.full
def test_the_history_is_searched_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "duo" / "chat_history"
    file.parent.mkdir()
    file.write_text("/mode sync\n/mode plain\n/help\n")  # as readline wrote it
    file.chmod(0o600)
    for _ in range(2):
        with terminal("chat", "-c", "64", env=home(tmp_path)) as child:
            child.expect(READY)
            child.send("\x12sync")  # Ctrl-R
            child.expect_exact("I-search backward")
            child.send(ENTER)
            child.send(ENTER)
            child.expect_exact("duo: mode sync")
            child.expect(PROMPT)
            child.send(CTRL_D)
            assert rest_of(child)[0] == 0
    assert history(tmp_path) == ["/mode sync", "/mode plain", "/help", "/mode sync"]
    assert file.stat().st_mode & 0o077 == 0


def test_tab_completes_commands_and_files(tmp_path: Path) -> None:
    saved = tmp_path / "a talk.json"
    saved.write_text('[{"role": "user", "content": "Hi"}]')
    with terminal("chat", "-c", "64", env=home(tmp_path)) as child:
        child.expect(READY)
        child.send(f"/lo{TAB}")
        child.expect_exact("/load")
        child.send(f" {tmp_path}/a{TAB}")
        child.expect_exact(" talk.json")
        child.send(ENTER)
        child.expect_exact(f"1 messages read from {saved}")
        child.expect(PROMPT)
        child.send(CTRL_D)
        assert rest_of(child)[0] == 0


@pytest.mark.parametrize(
    ("env", "to"), mostly_daily([({"TERM": "dumb"}, ""), ({}, "> out"), ({}, "> out 2>&1")], [({"TERM": "dumb"}, "")])
)
def test_a_terminal_that_cannot_edit_and_answers_that_go_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], to: str
) -> None:
    monkeypatch.chdir(tmp_path)
    args = ("chat", "--temp", "0", "-n", "8", "-c", "256")
    with terminal(*args, env=home(tmp_path) | env, to=to) as child:
        if "2>&1" not in to:
            child.expect(r"/help lists the commands.*?>")
        child.send("Hello\n")
        child.send("/nothing\n")
        if "2>&1" not in to:
            child.expect_exact("unknown command /nothing")
        child.send("/exit\n")
        code, _ = rest_of(child)
    assert code == 0
    if to:
        out = (tmp_path / "out").read_text()
        assert out.strip() and "\x1b" not in out
        assert ("unknown command /nothing" in out) == ("2>&1" in to)


# ---- without a terminal


@pytest.mark.parametrize(("line", "offered"), [
    ("/", ["/exit", "/load", "/save"]), ("/lo", ["/load"]), ("/load ", []), ("x", []), ("/mode ", ["async", "sync"]),
    ("/mode pl", ["plain"]), ("a\n/lo", []), ("/nothing ", []), ("/save b", ["ook"]), ("/image b", ["ook"]),
    ("/audio b", ["ook"]),
])  # fmt: skip
def test_what_is_completed(line: str, offered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book").touch()
    completer = CommandCompleter(["exit", "load", "mode", "save"])
    found = [c.text for c in completer.get_completions(Document(line), CompleteEvent(completion_requested=True))]
    assert set(offered) <= set(found)
    assert offered or line == "/load " or not found


def test_a_history_of_libedit_is_read(tmp_path: Path) -> None:
    file = tmp_path / "h"
    file.write_text("_HiStOrY_V2_\nTell\\040me\\040of\\040a\\040k\\303\\244fer.\n")
    for _ in range(2):
        assert list(ChatHistory(file).load_history_strings()) == ["Tell me of a käfer."]


def test_the_history_has_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "new" / "h"
    kept = ChatHistory(file)
    assert list(kept.load_history_strings()) == []
    for i in range(N_HISTORY + 20):
        kept.store_string(f"{i}\nof many")
    assert next(iter(ChatHistory(file).load_history_strings())) == f"{N_HISTORY + 19}\nof many"
    assert file.read_text().count("of many") == N_HISTORY
    (tmp_path / "folder").mkdir()
    ChatHistory(tmp_path / "folder").store_string("x")  # cannot be written, which is no error
    assert list(ChatHistory(tmp_path / "folder").load_history_strings()) == []


@pytest.mark.parametrize(("text", "more", "turn"), [
    ("a", False, None), ('"""', True, ""), ('"""a', True, "a"), ('"""a"""', False, "a"),
    (' """\na\n\nb\n""" ', False, "a\n\nb"),
    ('"""a"""\n\n', False, "a"), ('"""a"""\nb', False, None), ('""""""', False, ""), ('a """', False, None),
])  # fmt: skip
def test_fences(text: str, more: bool, turn: str | None) -> None:
    assert (is_open(text), without_fences(text)) == (more, turn)
