"""Control tokens as a part of the text (--special)."""

from collections.abc import Callable

from duo import Duo

Run = Callable[..., tuple[int, str, str]]


def test_control_tokens_are_written_if_that_is_wanted(run: Run) -> None:
    with Duo() as d:
        token = d.tokenize("<|im_start|>", add_bos=False, special=True)[0]
        end = d.tokenize("<|im_end|>", add_bos=False, special=True)[0]
    asked = ("-p", "Once", "-n", "3", "--no-display-prompt", "-l", f"{token}+100")
    assert run(*asked)[1].strip() == ""
    for mode in ("plain", "sync", "async"):
        assert run(*asked, "-sp", "--mode", mode)[1].strip() == "<|im_start|>" * 3
    assert run("-p", "Once", "-n", "3", "--no-display-prompt", "-l", f"{end}+100", "--special")[1].strip() == ""
