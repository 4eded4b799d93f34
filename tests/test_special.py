"""Control tokens as a part of the text (--special)."""

from collections.abc import Callable
from typing import Any

from served import TEMPLATE, served

from duo import Duo
from duo.compat.llama_cpp.answer import Spelled
from duo.compat.openai.logprobs import LogprobLists, rows_of_tokens
from duo.generation.result import Chunk, TokenLogprobs

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


def test_no_control_token_is_written_twice() -> None:
    with served(special=True, n_parallel=1, n_ctx=512, chat_template=TEMPLATE) as s:
        d = s.duo
        (token,) = d.tokenize("<|im_start|>", add_bos=False, special=True)
        asked: dict[str, Any] = {"logit_bias": {str(token): 100}, "temperature": 0, "max_tokens": 3}
        spelled = Spelled(d.local_model)
        for chunk in d.stream("Once", logit_bias={token: 100.0}, temperature=0, max_tokens=3):
            spelled.add(chunk)
        assert spelled.take() == "<|im_start|>" * 3
        answer = s.post("/completion", {**asked, "prompt": "Once", "stop": ["<|im_start|><|im"]}).json()
        assert (answer["content"], answer["stop_type"], answer["stopping_word"]) == ("", "word", "<|im_start|><|im")
        answer = s.post("/completion", {**asked, "prompt": "Once", "n_probs": 1}).json()
        assert [row["token"] for row in answer["completion_probabilities"]] == ["<|im_start|>"] * 3


def test_a_token_that_only_a_target_elsewhere_has_is_no_text() -> None:
    """The vocabulary of a host's target may be larger than the draft's."""
    with Duo(n_ctx=256) as d:
        token, model = d.n_vocab() + 3, d.local_model
        spelled = Spelled(model)
        spelled.add(Chunk("", token))
        spelled.add(Chunk("a", d.tokenize("a", add_bos=False)[0]))
        assert spelled.take() == "a"
        logprobs = [TokenLogprobs(token, -1.0, ((5, -0.5),))]
        assert rows_of_tokens(model, logprobs)[0]["token"] == ""
        assert LogprobLists(model).of(logprobs)["tokens"] == [""]
