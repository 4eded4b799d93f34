"""`duo chat`: its conversations, and a script with a pipe. test_chat_terminal.py has a user with a terminal."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_files import rewrite

from duo import Chunk, Duo, DuoError, Result
from duo.cli import chat_commands, show
from duo.cli.commands.chat import answer
from duo.conversation import Conversation
from duo.generation.stream import Stream
from duo.models.demo import demo_pair

Run = Callable[..., tuple[int, str, str]]
FAST = ("-n", 20, "--temp", 0, "-c", 512)


def written(d: Duo, talk: Conversation, question: str, **options: object) -> Result:
    stream = talk.ask(question, temperature=0, **options)
    for _ in stream:
        pass
    talk.answered(stream.result)
    return stream.result


def test_the_second_turn_reads_only_what_is_new(duo_pair: Duo) -> None:
    talk = Conversation(duo_pair, duo_pair.chat_template, "You tell tales.")
    first = written(duo_pair, talk, "Tell me the tale of the frog.", max_tokens=60)
    second = written(duo_pair, talk, "And then?", max_tokens=20)
    whole = first.prompt_tokens + len(first.tokens)
    assert second.prompt_tokens > whole
    assert second.timings["cache_n"] >= whole - 2  # the last token of an answer was never read
    assert second.timings["prompt_n"] <= second.prompt_tokens - whole + 2
    text = duo_pair.chat_template.render(talk.messages[:-1])
    assert duo_pair.decode(talk.tokens_of(text), special=True) == text
    talk.reset()
    assert [m["role"] for m in talk.messages] == ["system"]


def test_a_stop_string_in_an_answer_does_not_come_back(duo_pair: Duo) -> None:
    talk = Conversation(duo_pair, duo_pair.chat_template)
    r = written(duo_pair, talk, "Tell me the tale of the frog.", stop=["turtle", "import"], max_tokens=60)
    text = duo_pair.chat_template.render(talk.messages)
    assert duo_pair.decode(talk.tokens_of(text), special=True) == text
    assert talk.messages[-1]["content"] == r.text


def test_ctrl_c_stops_the_answer_and_keeps_it(
    duo_pair: Duo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = Conversation(duo_pair, duo_pair.chat_template)
    n, call = [0], show.TokenPrinter.__call__

    def interrupted(self: show.TokenPrinter, chunk: object) -> None:
        call(self, chunk)  # type: ignore[arg-type]
        n[0] += 1
        if n[0] == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(show.TokenPrinter, "__call__", interrupted)
    answer(talk, "Tell me the tale of the frog.", {"ignore_eos": True}, color=False)
    assert talk.last is not None
    assert talk.last.finish_reason == "cancelled"
    assert talk.messages[-1]["content"] == talk.last.text != ""
    assert capsys.readouterr().out == talk.last.text + "\n"
    monkeypatch.undo()
    assert written(duo_pair, talk, "And then?", max_tokens=5).timings["cache_n"] > 10


def test_a_question_stays_with_its_answer_or_not_at_all(duo_pair: Duo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C comes while the first one stops the answer, or the answer fails before its first word."""
    talk, close, call = Conversation(duo_pair, duo_pair.chat_template), Stream.close, show.TokenPrinter.__call__

    def shown(self: show.TokenPrinter, chunk: Chunk) -> None:
        call(self, chunk)
        if chunk.text:
            raise KeyboardInterrupt

    def once(_: Stream) -> None:
        monkeypatch.setattr(Stream, "close", close)
        raise KeyboardInterrupt

    def nothing(_: Stream) -> Chunk:
        raise DuoError("the draft is lost")

    monkeypatch.setattr(Stream, "close", once)
    with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
        m.setattr(show.TokenPrinter, "__call__", shown)
        answer(talk, "Tell me the tale of the frog.", {}, color=False)
    assert [x["role"] for x in talk.messages] == ["user", "assistant"] and talk.messages[1]["content"]
    with monkeypatch.context() as m, pytest.raises(DuoError, match="lost"):
        m.setattr(Stream, "__next__", nothing)
        answer(talk, "And then?", {}, color=False)
    assert [x["role"] for x in talk.messages] == ["user", "assistant"]
    assert written(duo_pair, talk, "And then?", max_tokens=2).text


def test_a_question_that_cannot_be_asked_is_forgotten(duo_pair: Duo) -> None:
    talk = Conversation(duo_pair, duo_pair.chat_template)
    with pytest.raises(DuoError, match="the context holds"):
        talk.ask("frog " * 600)
    assert talk.messages == []


def test_a_full_context_is_reported(run: Run) -> None:
    options = ("-c", "64", "--temp", "0", "--ignore-eos", "-n", "-1")
    code, out, err = run("chat", *options, stdin=b"Tell me a tale.")
    assert code == 0 and out
    assert err == "duo: the context of 64 tokens is full; /reset clears the conversation, -c makes it larger\n"


def test_lines_of_a_pipe_are_turns(run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "talk.json"
    lines = f'Tell me a tale.\n\nOne\\\nturn\n"""\nthree\nlines\n"""\n/save {saved}\n/mode plain\n/stats\nlast'
    code, out, err = run("chat", *FAST, stdin=lines.encode())
    assert code == 0
    messages = json.loads(saved.read_text(encoding="utf-8"))
    assert [m["content"] for m in messages[::2]] == ["Tell me a tale.", "One\nturn", "three\nlines"]
    assert [m["role"] for m in messages] == ["user", "assistant"] * 3
    for m in messages[1::2]:
        assert m["content"] in out
    assert "\x1b" not in out
    assert err.splitlines()[:2] == [f"duo: 6 messages written to {saved}", "duo: mode plain"]
    assert "cached)" in err


def test_a_saved_conversation_goes_on(run: Run, tmp_path: Path) -> None:
    whole = run("chat", *FAST, stdin=b"Tell me a tale.\nMore\n")[1]
    saved = tmp_path / "talk.json"
    lines = b"Tell me a tale.\n/save %s\n/reset\n/exit\nnever read" % os.fsencode(saved)
    _, first, err = run("chat", *FAST, stdin=lines)
    assert err.splitlines()[-1] == "duo: 2 messages removed"
    then = run("chat", *FAST, stdin=b"/load %s\nMore\n" % os.fsencode(saved))[1]
    assert first + then == whole


def test_the_system_prompt_and_the_template(run: Run, tmp_path: Path) -> None:
    file, saved = tmp_path / "sys.txt", tmp_path / "talk.json"
    file.write_text("Be\nbrief.")
    ask = b"/save %s\nHi\n" % os.fsencode(saved)
    run("chat", *FAST, "-sys", r"Be\nbrief.", stdin=ask)
    assert json.loads(saved.read_text()) == [{"role": "system", "content": "Be\nbrief."}]
    of_text = run("chat", *FAST, "-sysf", file, stdin=b"Hi\n")[1]
    template = tmp_path / "t.jinja"
    template.write_text(demo_template())
    assert run("chat", *FAST, "-sysf", file, "--chat-template-file", template, stdin=b"Hi\n")[1] == of_text
    assert run("chat", *FAST, "-sysf", file, "--chat-template", "llama3", stdin=b"Hi\n")[1] != of_text


def demo_template() -> str:
    with Duo(demo_pair()[0], n_ctx=64) as d:
        return d.target.meta("tokenizer.chat_template")


@pytest.mark.parametrize("args,stdin,why", [
    (["--chat-template", "{{ x"], b"Hi", "line 1 of the chat template is not jinja2"),
    (["--chat-template", "{{ raise_exception('only users') }}"], b"Hi", "refuses this conversation: only users"),
    (["--chat-template", "widget"], b"Hi", "unknown chat template 'widget'"),
    (["--chat-template", "chatml", "--chat-template-file", "x"], b"Hi", "choose one"),
    (["--chat-template-file", "no/such"], b"Hi", "no/such cannot be read"),
    (["-sys", "a", "-sysf", "b"], b"Hi", "both -sys and -sysf were given"),
    ([], b"/widget", "unknown command /widget"),
    ([], b"/load no/such.json", "no/such.json cannot be read"),
    ([], b"/load", "/load needs a file"),
    ([], b"/save ~no-such-user/x", "full path"),
    ([], b"/save a\0b", "NUL character"),
    ([], b"frog " * 600, "or clear the conversation with /reset"),
    ([], b"/mode fast", "unknown mode fast"),
    ([], b"/stats", "there are no figures yet"),
    ([], b"H\xff", "standard input is not UTF-8"),
    (["-n", "0"], b"Hi", "max_tokens"),
])  # fmt: skip
def test_mistakes_are_one_sentence(run: Run, args: list[str], stdin: bytes, why: str) -> None:
    code, out, err = run("chat", "-c", 256, *args, stdin=stdin)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert why in err


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '[{"role": "user"}]', '["x"]'])
def test_loading_an_invalid_conversation_changes_nothing(duo_pair: Duo, tmp_path: Path, content: str) -> None:
    talk = Conversation(duo_pair, duo_pair.chat_template, "s")
    file = tmp_path / "talk.json"
    file.write_text(content)
    with pytest.raises(DuoError, match=re.escape(str(file))):
        talk.load(file)
    assert len(talk.messages) == 1
    with pytest.raises(DuoError, match="cannot be written"):
        talk.save(tmp_path)


def test_a_failed_save_leaves_the_file_unchanged(duo_pair: Duo, tmp_path: Path) -> None:
    talk = Conversation(duo_pair, duo_pair.chat_template, "a\ud800")
    file = tmp_path / "talk.json"
    file.write_text("old")
    with pytest.raises(DuoError, match="not valid Unicode"):
        talk.save(file)
    assert file.read_text() == "old"
    Conversation(duo_pair, duo_pair.chat_template, "s").save(file)
    assert json.loads(file.read_text()) == [{"role": "system", "content": "s"}]
    assert list(tmp_path.iterdir()) == [file]
    file.write_text(json.dumps([{"role": "user", "content": "a\ud800"}]))
    with pytest.raises(DuoError, match="message 0 is not valid Unicode"):
        talk.load(file)


def test_only_a_line_of_its_own_is_a_command(run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "talk.json"
    code = run("chat", *FAST, stdin=b'"""\n/exit\n"""\n"""/exit"""\n/exit\\\nnow\n/save %s\n' % os.fsencode(saved))[0]
    assert code == 0
    messages = json.loads(saved.read_text())
    assert [m["content"] for m in messages[::2]] == ["/exit", "/exit", "/exit\nnow"]


def test_a_base_model_says_that_it_has_no_template(run: Run, tmp_path: Path) -> None:
    base = rewrite(demo_pair()[0], tmp_path / "base.gguf", drop=["tokenizer.chat_template"])
    code, _, err = run("chat", "-m", base, stdin=b"Hi")
    assert code == 1
    assert err == (
        "duo: base.gguf has no chat template, like most base models; give one with --chat-template (chatml, "
        "llama3, ...) or --chat-template-file\n"
    )
    assert run("chat", *FAST, "-m", base, "--chat-template", "chatml", stdin=b"Hi")[0] == 0


def test_the_help_names_every_command(run: Run) -> None:
    out = run("chat", "--help")[1]
    for name in ("/reset", "/save FILE", "/load FILE", "/stats", "/mode MODE", "/help", "/exit"):
        assert name in out
        assert name in chat_commands.HELP_TEXT


def test_shells_complete_commands_and_options(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_DUO_COMPLETE" in run("completion", shell)[1]
    code, _, err = run("completion", "tcsh")
    assert (code, err) == (1, "duo: no completion for tcsh; choose bash, zsh or fish\n")
    monkeypatch.setenv("_DUO_COMPLETE", "bash_complete")
    for typed, found in (
        ("duo cha", "plain,chat"),
        ("duo --json-s", "plain,--json-schema plain,--json-schema-file"),
        ("duo -m x", "file,x"),
        ("duo --lora x", "file,x"),
        ("duo --control-vector-scaled x", "file,x"),
        ("duo check x", "file,x"),
        ("duo --mode a", "plain,async"),
        ("duo chat --cpu-kernels ", "plain,auto plain,duo plain,stock"),
        ("duo pairs show dem", "plain,demo plain,demo-eagle3"),
    ):
        monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
        monkeypatch.setenv("COMP_WORDS", typed)
        with pytest.raises(SystemExit) as e:
            run()
        assert e.value.code == 0
        assert capfd.readouterr().out.split() == found.split()
