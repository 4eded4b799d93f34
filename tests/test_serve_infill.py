"""/infill: the prompts that llama-server makes of code around a gap and of other files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_files import BOOL, U32, rewrite
from llama_code import TARGET
from served import served

from duo import Duo
from duo.server.infill_prompt import infill_prompt
from duo.server.schemas import InfillFields

BEFORE, BEHIND, MIDDLE, REPOSITORY, FILE = range(301, 306)
FIM = {"pre": BEFORE, "suf": BEHIND, "mid": MIDDLE}
CODE = "def add(a, b):\n    return a + b\n"
ASKED = {"input_prefix": "def f(x):\n", "input_suffix": "\n<|im_end|> y", "prompt": "    ret"}
FILES = [{"filename": "a.py", "text": CODE}, {"text": "z = 1\n"}]
Make = Callable[..., Path]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Make:
    def make(*, bos: bool = True, **tokens: int) -> Path:
        put = {f"tokenizer.ggml.fim_{name}_token_id": (U32, token) for name, token in tokens.items()}
        put["tokenizer.ggml.add_bos_token"] = (BOOL, bos)
        return rewrite(TARGET, tmp_path_factory.mktemp("fim") / "fim.gguf", put=put)

    return make


def prompt(d: Duo, n_predict: int = 16, **fields: object) -> list[int]:
    return infill_prompt(d, InfillFields.model_validate({**ASKED, "n_predict": n_predict, **fields}))


def words(d: Duo, text: str) -> list[int]:
    return d.tokenize(text, add_bos=False)


def test_a_repository_stands_before_the_gap(model: Make) -> None:
    with Duo(model(**FIM, rep=REPOSITORY, sep=FILE), n_ctx=512, n_batch=128) as d:
        files = [REPOSITORY, *words(d, "myproject\n"), FILE, *words(d, "a.py\n"), *words(d, CODE),
                 FILE, *words(d, "tmp\n"), *words(d, "z = 1\n"), FILE, *words(d, "filename\n")]  # fmt: skip
        gap = [d.token_bos(), BEFORE, *words(d, "def f(x):\n"), *words(d, "    ret"),
               BEHIND, *words(d, "\n<|im_end|> y"), MIDDLE]  # fmt: skip
        assert prompt(d, input_extra=FILES) == files + gap
        mixed = ["def f", *words(d, "(x):\n")]
        assert prompt(d, input_extra=FILES, input_prefix=mixed)[-len(gap) :][2:4] == words(d, "def f")[:2]


def test_without_tokens_for_files_there_is_a_line(model: Make) -> None:
    with Duo(model(**FIM, bos=False), n_ctx=512, n_batch=128, spm_infill=True) as d:
        line = words(d, "\n\n--- snippet ---\n\n")
        gap = [BEHIND, *words(d, "\n<|im_end|> y"), BEFORE, *words(d, "def f(x):\n"), *words(d, "    ret"), MIDDLE]
        assert prompt(d, input_extra=FILES) == [*line, *words(d, CODE), *line, *words(d, "z = 1\n"), *gap]
        assert prompt(d) == gap


def test_what_does_not_fit_is_left_out(model: Make) -> None:
    """Prefix and suffix share a batch, other files fill the context, and the answer keeps its place."""
    long = {"input_prefix": CODE * 40, "input_suffix": CODE * 30, "input_extra": [{"text": CODE * 50}]}
    with Duo(model(**FIM, rep=REPOSITORY, sep=FILE), n_ctx=512, n_batch=128) as d:
        ids, typed, code = prompt(d, **long), words(d, "    ret"), words(d, CODE * 60)
        files, gap = ids[: ids.index(d.token_bos())], ids[ids.index(d.token_bos()) :]
        assert gap == [d.token_bos(), BEFORE, *words(d, CODE * 40)[-96:], *typed,
                       BEHIND, *words(d, CODE * 30)[: 32 - 2 - len(typed)], MIDDLE]  # fmt: skip
        assert len(ids) == 512 - 16  # llama-server takes 512 - 128 + 2 tokens of files, which leaves no place at all
        assert files == [*code, FILE, *words(d, "filename\n")][-len(files) :]
        assert len(prompt(d, n_predict=-1, **long)) == 512 - 128
        d.defaults["max_tokens"] = 100
        assert prompt(d, **long) == [*files[-(512 - 128 - 200) :], *gap]  # as llama-server, which is told by -n
    with Duo(model(**FIM), n_ctx=256) as d:  # a batch is larger
        assert 256 - 32 - 4 < len(prompt(d, n_predict=32, **long)) <= 256 - 32


def test_the_server_fills_in(model: Make) -> None:
    long = {**ASKED, "input_prefix": CODE * 40, "input_extra": FILES * 8, "n_predict": 4, "temperature": 0}
    with served(model=model(**FIM, rep=REPOSITORY, sep=FILE), n_ctx=256, n_parallel=1) as s:
        answer = s.post("/infill", long).json()
        assert answer["tokens_predicted"] == 4 and answer["prompt"].count("def add") > 5
        named = s.post("/infill", {**long, "logprobs": 2}).json()["completion_probabilities"]
        assert [len(row["top_logprobs"]) for row in named] == [2] * 4
        wrong = s.post("/infill", {**ASKED, "input_extra": [{"filename": "a.py"}]})
        assert (wrong.status_code, "input_extra 0 has no text" in wrong.text) == (400, True)
    with served(model=model(pre=BEFORE, suf=BEHIND), n_ctx=256, n_parallel=1) as s:
        assert s.post("/infill", ASKED).status_code == 501
