"""`duo -i --in-prefix ...`: the model and the user write one text in turn, without a chat template."""

from collections.abc import Callable

import pytest

import duo

Run = Callable[..., tuple[int, str, str]]
ARGS = ("-p", "Once upon a time", "-n", "24", "--temp", "0", "--ignore-eos")


def test_the_turns_are_one_text(run: Run) -> None:
    lines = ["He said:", "", r"And\nthen"]
    code, out, err = run(*ARGS, "-i", "--in-prefix", " [", "--in-suffix", "] ", stdin="\n".join(lines).encode() + b"\n")
    assert code == 0, err
    with duo.Duo() as d:
        text = "Once upon a time"
        tokens = d.tokenize(text)
        want = text
        for line in [*lines, None]:
            r = d.generate(tokens, max_tokens=24, temperature=0, ignore_eos=True)
            tokens += r.tokens
            want += r.text + " ["
            if line:
                said = line.replace(r"\n", "\n")
                for part in (" [", said, "] "):
                    tokens += d.tokenize(part, add_bos=False)
                want += "] "
    assert out == want


def test_a_reverse_prompt_gives_the_turn_and_stays_in_the_text(run: Run) -> None:
    code, out, _ = run(*ARGS, "-i", "-r", " the", stdin=b" very\n")
    assert code == 0
    with duo.Duo() as d:
        r = d.generate("Once upon a time", max_tokens=24, temperature=0, ignore_eos=True, stop=[" the"])
        assert r.finish_reason == "stop"
        before = "Once upon a time" + r.text + " the"
        text = [*d.tokenize("Once upon a time"), *r.tokens, *d.tokenize(" very", add_bos=False)]
        rest = d.generate(text, max_tokens=24, temperature=0, ignore_eos=True, stop=[" the"])
    assert out.startswith(before + rest.text)


def test_the_users_turn_may_come_first(run: Run) -> None:
    code, out, _ = run("-if", "--in-prefix-bos", "-n", "8", "--temp", "0", stdin=b"Once upon a time\n")
    with duo.Duo() as d:
        assert code == 0
        assert out == d.generate("Once upon a time", max_tokens=8, temperature=0).text
    assert run("-if", stdin=b"")[:2] == (0, "")


@pytest.mark.parametrize("args", [("-i", "--in-prefix", " "), ("-if",)])
def test_a_line_that_is_not_utf8_is_a_sentence(run: Run, args: tuple[str, ...]) -> None:
    code, _, err = run(*ARGS, *args, stdin=b"\xff\n")
    assert code == 1 and "a line of standard input is not UTF-8 (byte 0)" in err and "Traceback" not in err


def test_what_is_generated_is_not_lost_when_the_context_is_full(run: Run) -> None:
    code, out, err = run(*ARGS, "-i", "--in-suffix", " ", "-c", "64", stdin=b"word\n" * 40)
    assert code == 1 and len(out) > 60
    assert err.strip().splitlines()[-1].startswith("duo: the prompt") and "Traceback" not in err
