"""What a model thinks in a conversation: shown apart from its answer, or left in it."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from duo import Duo
from duo.chat.chat_template import ChatTemplate
from duo.cli import show
from duo.conversation import Conversation

Run = Callable[..., tuple[int, str, str]]
FAST = ("-n", 20, "--temp", 0, "-c", 512)
THINKS = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{{ 'assistant: <think>' if enable_thinking | default(true) else 'assistant:' }}"
)


def test_thoughts_are_no_part_of_an_answer(run: Run, tmp_path: Path) -> None:
    def chat(answer: str, *args: object) -> tuple[str, list[dict[str, str]]]:
        saved = tmp_path / "talk.json"
        code, out, err = run(
            "chat",
            *FAST,
            "-n",
            60,
            "-co",
            "off",
            "--chat-template",
            THINKS,
            *args,
            "--grammar",
            f"root ::= {json.dumps(answer)}",
            stdin=f"Hi.\n/save {saved}\n".encode(),
        )
        assert (code, err.startswith("duo: 2 messages written")) == (0, True), err
        return out, json.loads(saved.read_text())

    out, talk = chat("Hm.</think>Hello.")
    assert (out, talk[1]) == ("Hello.\n", {"role": "assistant", "content": "Hello.", "reasoning_content": "Hm."})
    for args in (("--reasoning-format", "none"), ("--chat-template-kwargs", '{"enable_thinking": false}')):
        out, talk = chat("Hm.</think>Hello.", *args)
        assert (out, talk[1]) == ("Hm.</think>Hello.\n", {"role": "assistant", "content": "Hm.</think>Hello."})
    out, talk = chat("<think>Hm.</think>Hello.", "--chat-template-kwargs", '{"enable_thinking": false}')
    assert (out, talk[1]["reasoning_content"]) == ("Hello.\n", "Hm.")
    out, talk = chat("Only this.")  # the answer never came
    assert (out, talk[1]["content"], talk[1]["reasoning_content"]) == ("\n", "", "Only this.")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("color,shown", [
    (True, "\x1b[2mHm. So.\x1b[0m\n\nHello.\n"), (False, "(thinking)\nHm. So.\n\nHello.\n"),
], ids=["colours", "none"])  # fmt: skip
def test_thoughts_on_a_terminal(duo_pair: Duo, color: bool, shown: str) -> None:
    talk = Conversation(duo_pair, ChatTemplate(THINKS), reasoning=True)
    out = Terminal()
    stream = talk.ask("Hi.", grammar='root ::= "Hm. So.</think>\\n\\nHello."', mode="plain")
    reading = talk.reading()
    assert reading is not None
    show.TokenPrinter(out, color, reading).write(stream)
    assert out.getvalue() == shown
    assert (reading.answer.reasoning, reading.answer.content) == ("Hm. So.", "Hello.")


@pytest.mark.parametrize("args,why", [
    (("--chat-template-kwargs", "[1]"), "is not a JSON object"),
    (("--chat-template-kwargs", "{"), "is not a JSON object"),
    (("--chat-template-kwargs", '{"messages": 1}'), "messages is no variable of a chat template"),
    (("--reasoning-format", "deepseek-legacy"), "it is none, auto or deepseek"),
    (("--chat-template-kwargs", '{"a": 1}', "--chat-template", "llama3"), "llama3 has no variables (a)"),
], ids=str)  # fmt: skip
def test_bad_thoughts_are_refused(run: Run, args: tuple[str, ...], why: str) -> None:
    code, _, err = run("chat", *FAST, *args, stdin=b"Hi.\n")
    assert code == 1 and err.count("\n") == 1 and why in err


def test_they_are_options_of_conversations(run: Run) -> None:
    code, _, err = run("run", "-p", "x", "--reasoning-format", "none")
    assert (code, err) == (
        1,
        "duo: --reasoning-format is an option of conversations; write: duo chat --reasoning-format\n",
    )


def test_the_conversation_is_written_to_a_file(run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "talk.txt"
    kept.write_text("old")
    asked = ("chat", *FAST, "-n", 60, "--chat-template", THINKS, "--grammar", 'root ::= "Hm.</think>Hello."')
    assert run(*asked, "-o", kept, stdin=b"Hi.\nAnd\\\nthen?\n")[0] == 0
    answer = "Assistant:\n[Start thinking]\n\nHm.[End thinking]\n\nHello.\n\n"
    assert kept.read_text() == f"User:\nHi.\n\n{answer}User:\nAnd\nthen?\n\n{answer}"
    assert run(*asked, "--reasoning-format", "none", "--output", kept, "-p", "Hi.", "-st")[0] == 0
    assert kept.read_text() == "User:\nHi.\n\nAssistant:\nHm.</think>Hello.\n\n"
    code, _, err = run(*asked, "--output-file", tmp_path / "none" / "talk.txt", stdin=b"Hi.\n")
    assert code == 1 and err.endswith("(-o) cannot be written (No such file or directory); choose another file\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_full_disk_is_a_sentence(run: Run) -> None:
    code, _, err = run("chat", *FAST, "-n", 8, "-o", "/dev/full", stdin=b"Hi.\n")
    assert code == 1 and "/dev/full (-o) cannot be written (No space left on device)" in err and "Traceback" not in err
