"""`duo check`: the engine's own answer, without loading anything."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import BOOL, I32, STR, U32, Value, rewrite, tiny_mamba, tokens_of
from loads import load, load_all
from sizes import size

from duo import DuoError, _core
from duo.cli.main import main
from duo.cli.pair_table import print_all
from duo.gguf_tools.whole_file import CheckedGgufReader
from duo.models.demo import demo_pair
from duo.models.pairs import Entry, ModelRef, Pair
from duo.placement.compatibility import check_pair
from duo.placement.devices import Device
from duo.placement.states import n_states, state_bytes

TARGET, DRAFT = demo_pair()
TOKENS = tokens_of(TARGET)
GB = 10**9
GPU, CPU = Device("GPU", "", "gpu", GB, GB), Device("CPU", "", "cpu", GB, GB)


def with_words(**changes: str) -> dict[str, Value]:
    words = list(TOKENS)
    for i, word in changes.items():
        words[int(i.removeprefix("t"))] = word
    return {"tokenizer.ggml.tokens": (STR, words)}


def with_size(n: int) -> dict[str, Any]:
    """A draft of so many tokens."""

    def weights(name: str, data: Any) -> Any:
        if name not in ("token_embd.weight", "output.weight"):
            return data
        return np.concatenate([data, data[: n - 4096]]) if n > 4096 else data[:n]

    words = (TOKENS + [f"more{i}" for i in range(n)])[:n]
    kinds = [3] * 5 + [1] * (n - 5)
    put = {"tokenizer.ggml.tokens": (STR, words), "tokenizer.ggml.token_type": (I32, kinds),
           "llama.vocab_size": (U32, n)}  # fmt: skip
    return {"put": put, "weights": weights}


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "another token": ({"put": with_words(t300="other\n")}, "token 300 is 'other\\x0a' in the draft and '"),
    "the first token": ({"put": with_words(t0="<a>", t4="<b>")}, ""),
    "another beginning": ({"put": {"tokenizer.ggml.bos_token_id": (U32, 2)}}, "BOS token is 2 and the target's is 0"),
    "no beginning": ({"put": {"tokenizer.ggml.add_bos_token": (BOOL, False)}},
                     "it begins a text without its BOS token and the target with"),
    "an end": ({"put": {"tokenizer.ggml.add_eos_token": (BOOL, True)}},
               "it ends a text with its EOS token and the target without"),
    "padding": (with_size(4096 + 128), ""),
    "less padding": (with_size(4096 - 128), ""),
    "other sizes": (with_size(4096 + 129), "its vocabulary has 4225 tokens and the target's 4096"),
    "another kind": ({"put": {"tokenizer.ggml.model": (STR, "rwkv")}}, "tokenizers are of different types"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_check_says_what_differs(name: str, tmp_path: Path) -> None:
    changes, expected = CASES[name]
    draft = rewrite(DRAFT, tmp_path / "draft.gguf", **changes)
    c = check_pair(TARGET, draft, [CPU])
    assert expected in c.difference and bool(c.difference) == bool(expected)
    assert c.compatible and (c.shared or 0.0) > (0.4 if expected else -1.0)  # guesses are translated


@pytest.mark.full
def test_the_engine_takes_what_check_calls_compatible(tmp_path: Path) -> None:
    some = dict(list(CASES.items())[:: size(2, 1)])

    def cases() -> Iterator[tuple[list[Any], dict[str, Any]]]:
        for changes, _ in some.values():
            yield [TARGET, rewrite(DRAFT, tmp_path / "draft.gguf", **changes)], {}

    for name, outcome in zip(some, load_all(cases()), strict=True):
        assert outcome.what != "refused", name


def test_a_recurrent_model_can_be_part_of_a_pair(tmp_path: Path) -> None:
    mamba = tiny_mamba(DRAFT, tmp_path / "mamba.gguf")
    c = check_pair(TARGET, mamba, [CPU])
    assert c.compatible and load(TARGET, mamba).what != "refused"
    assert c.draft.vocabulary.keeps_state
    assert c.draft.need.total_cache == n_states(c.draft.header, draft=True, guesses=False, n_parallel=1) * sum(
        state_bytes(c.draft.header)
    )
    assert c.draft.as_dict()["way_back"] == "copy" and c.target.as_dict()["way_back"] == "cells"


def test_facts_of_both_models_are_reported() -> None:
    c = check_pair(TARGET, DRAFT, [GPU, CPU], n_ctx=300, host_free=GB)
    assert c.compatible and c.fits
    h = c.target.header
    assert (h.n_layer, h.n_vocab, c.target.n_ctx, c.draft.n_ctx) == (4, 4096, 300, 300)
    v = c.target.vocabulary
    assert (v.type, v.n_tokens, v.bos, v.bos_text, v.add_bos) == ("bpe", 4096, 0, TOKENS[0], True)
    assert c.target.need.total > c.draft.need.total > 0
    assert c.placement.target.devices == ("GPU",) and c.placement.target.n_gpu_layers == 5
    assert c.as_dict()["placement"]["draft"]["devices"]["GPU"] == c.placement.draft.bytes.devices[0]  # type: ignore[union-attr]


def test_a_longer_context_needs_more_and_a_smaller_cache_type_less() -> None:
    short, long = (check_pair(TARGET, DRAFT, [CPU], n_ctx=n).target.need.total_cache for n in (512, 4096))
    assert long > 5 * short
    small = check_pair(TARGET, DRAFT, [CPU], n_ctx=4096, type_k="q8_0", type_v="q8_0").target.need.total_cache
    assert small * 32 == long * 17


def test_too_little_memory_is_reported() -> None:
    assert not check_pair(TARGET, DRAFT, [CPU], host_free=1000).fits


# ---- split models


def split(source: Path, folder: Path, n_parts: int) -> Path:
    """The model in so many files, as llama.cpp's gguf-split makes them."""

    names = [t.name for t in CheckedGgufReader(source).tensors]
    for i in range(n_parts):
        mine = set(names[i::n_parts])
        rewrite(
            source,
            folder / f"m-{i + 1:05}-of-{n_parts:05}.gguf",
            put=_split_keys(i, n_parts, len(names)),
            drop=() if i == 0 else [k for k in _keys(source) if not k.startswith("split.")],
            weights=lambda name, data, mine=mine: data if name in mine else None,  # type: ignore[misc]
        )
    return folder / f"m-00001-of-{n_parts:05}.gguf"


def _split_keys(i: int, n_parts: int, n_tensors: int) -> dict[str, Value]:
    from gguf import GGUFValueType

    u16 = GGUFValueType.UINT16
    return {"split.no": (u16, i), "split.count": (u16, n_parts), "split.tensors.count": (I32, n_tensors)}


def _keys(source: Path) -> list[str]:
    from gguf_files import header_of

    return list(header_of(source))


def test_all_parts_of_a_split_model_are_read(tmp_path: Path) -> None:
    first = split(TARGET, tmp_path, 3)
    c, whole = check_pair(first, DRAFT, [CPU]), check_pair(TARGET, DRAFT, [CPU])
    assert c.compatible and c.target.header.n_parts == 3
    assert c.target.need == whole.target.need
    assert load(first, DRAFT).what != "refused"


def test_a_missing_part_and_a_wrong_first_one_are_named(tmp_path: Path) -> None:
    first = split(TARGET, tmp_path, 3)
    second = tmp_path / "m-00002-of-00003.gguf"
    with pytest.raises(DuoError, match=r"is part 2 of 3 of a model; give its first part"):
        check_pair(second, DRAFT, [CPU])
    second.unlink()
    with pytest.raises(DuoError, match=r"part 2 of 3 is missing: there is no file .*m-00002-of-00003\.gguf; download"):
        check_pair(first, DRAFT, [CPU])


# ---- the command


def test_the_command_prints_and_answers_with_its_exit_code(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(TARGET), str(DRAFT), "-c", "1024"]) == 0
    out = capfd.readouterr().out
    assert "the draft fits the target" in out and "1024 tokens" in out
    other = rewrite(DRAFT, tmp_path / "other.gguf", put=with_words(**{f"t{i}": f"x-{i}" for i in range(5, 4096)}))
    assert main(["check", str(TARGET), str(other)]) == 1
    captured = capfd.readouterr()
    assert "the draft does not fit the target: token 5 is 'x-5' in the draft" in captured.out and captured.err == ""
    assert main(["check", str(TARGET), str(other), "--json"]) == 1
    facts = json.loads(capfd.readouterr().out)
    assert facts["compatible"] is False and "token 5" in facts["why_not"]
    assert facts["target"]["memory"]["total"] == sum(facts["target"]["memory"][k] for k in ("weights", "cache", "work"))
    assert main(["check", "demo"]) == 0


def test_names_in_brackets_are_no_markup(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = {"t0": "[gMASK]"} | {f"t{i}": f"[/x{i}]" for i in range(5, 4096)}
    draft = rewrite(DRAFT, tmp_path / "[old].gguf", put=with_words(**names))
    assert main(["check", str(TARGET), str(draft)]) == 1
    out = capfd.readouterr().out
    assert "[old].gguf" in out and "0 '[gMASK]'" in out and "token 5 is '[/x5]' in the draft" in out
    pair = Pair(name="own", target=ModelRef(file="/data/[old]/x.gguf"), ngrams="always")
    print_all([Entry(pair, tmp_path, own=True)])
    assert "/data/[old]/x.gguf" in capfd.readouterr().out


def test_the_command_names_types_without_kernels(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not _core.kernels()[0]:
        pytest.skip("duo's kernels cannot be used here")
    assert main(["check", "demo"]) == 0
    out = capfd.readouterr().out
    assert re.search(r"^types +q8_0 8 MB +q8_0 3 MB", out, re.MULTILINE) and "own kernels compute" not in out
    monkeypatch.setattr(_core, "kernel_types", lambda: ["q4_0"])
    assert main(["check", "demo"]) == 0
    assert "on the CPU llama.cpp's own kernels compute q8_0; there a pass" in capfd.readouterr().out
    assert main(["check", "demo", "--json"]) == 0
    target = json.loads(capfd.readouterr().out)["target"]
    assert target["without_kernels"] == ["q8_0"] and list(target["matrix_bytes"]) == ["q8_0"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nowhere.gguf", "b.gguf"], "there is no file nowhere.gguf; check the path"),
        (["nothing"], "there is no pair nothing; see duo pairs"),
        ([], "0 models were given; give a target and a draft, or the name of a pair"),
        (["models/nowhere.gguf"], "there is no file models/nowhere.gguf; check the path"),
        ([str(TARGET), "--ram", "9" * 400], "which is not an amount of memory"),
        ([str(TARGET), "--vram", "much"], "--vram is 'much', which is not an amount of memory"),
        ([str(TARGET), __file__], "is not a GGUF file"),
        ([str(TARGET), str(DRAFT), "-dev", "CUDA9"], "unknown device CUDA9; choose from none"),
        ([str(TARGET), str(DRAFT), "-c", "x"], "n_ctx (-c) is 'x'"),
        ([str(TARGET), str(DRAFT), "--jsn"], "unknown option --jsn; did you mean --json?"),
    ],
)
def test_mistakes_are_one_sentence(args: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *args]) == 1
    err = capfd.readouterr().err
    assert message in err and err.count("\n") == 1


def test_a_model_alone_and_another_machine(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(TARGET), "--vram", "64M,8M", "--ram", "1M"]) == 0
    out = capfd.readouterr().out
    assert "draft" not in out and "placement: target whole on GPU0" in out
    assert main(["check", str(TARGET), str(DRAFT), "--vram", "8M", "--ram", "1M", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert not found["fits"] and found["cpu_free"] == 2**20  # the target has no place on such a card
    assert found["placement"]["target"]["devices"] == {"GPU0": 0}
    assert main(["check", str(TARGET), str(DRAFT), "--vram", "64M,64M", "-dev", "GPU1", "-devd", "GPU0"]) == 0
    assert "draft whole on GPU0" in (out := capfd.readouterr().out) and "target whole on GPU1" in out
    assert main(["check", str(TARGET.with_name("duo-demo-eagle3-q8_0.gguf"))]) == 1
    assert "is a draft head" in capfd.readouterr().out
    assert main(["check", str(TARGET), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["draft"] is None
