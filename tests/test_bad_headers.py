"""Headers with values that no model has: libllama asserts on some, divides by others; duo looks before it does."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType
from gguf_files import BOOL, F32, I32, STR, U32, U64, Value, header_of, rewrite, tiny_mamba, tokens_of
from loads import assert_harmless, load, load_all
from sizes import mostly_daily, size

from duo import Duo
from duo.errors import BadValueError
from duo.models.demo import demo_pair
from duo.models.header import read_header

pytestmark = pytest.mark.full

TARGET, DRAFT = demo_pair()
NAN, INF = float("nan"), float("inf")

SIZES = ("block_count", "embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv",
         "rope.dimension_count", "context_length", "vocab_size")  # fmt: skip
SIZE_VALUES: list[Value] = [
    (U32, 0), (U32, 1), (U32, 3), (U32, 63), (U32, 600), (U32, 2**31), (U32, 2**32 - 1), (I32, -1), (U64, 2**63),
    (F32, 4.0), (STR, "x"), (BOOL, True), (U32, [1, 2]), (U32, [0] * 2), (U32, [3] * 600),
]  # fmt: skip
FLOATS = ("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.factor", "rope.scaling.attn_factor",
          "logit_scale", "final_logit_softcapping", "swiglu_clamp_exp", "kda.gate_lower_bound",
          "no_such.number")  # fmt: skip
FLOAT_VALUES: list[Value] = [(F32, x) for x in (0.0, -1.0, NAN, INF, -INF, 1e-45, 3e38)] + [(U32, 1), (STR, "x")]
OTHERS: dict[str, list[Value]] = {
    "nextn_predict_layers": [(U32, 1), (U32, 3)],
    "expert_count": [(U32, 1), (U32, 8), (U32, 2000), (U32, 2**32 - 1)],
    "expert_used_count": [(U32, 1), (U32, 2**32 - 1), (U32, [1, 2]), (U32, [1, 5000])],
    "expert_group_count": [(U32, 1), (U32, 2)],
    "attention.key_length": [(U32, 0), (U32, 1), (U32, 63), (U32, 2**32 - 1)],
    "attention.value_length": [(U32, 0), (U32, 1), (U32, 63), (U32, 2**32 - 1)],
    "attention.sliding_window": [(U32, 0), (U32, 1), (U32, 2**32 - 1)],
    "rope.scaling.type": [(STR, "x"), (STR, ""), (STR, "yarn"), (STR, "longrope"), (U32, 1)],
    "pooling_type": [(U32, 1), (U32, 99)],
}
TOKENS = tokens_of(DRAFT)
TOKENIZER: dict[str, list[Value]] = {
    "tokens": [(STR, ["a"]), (STR, ["a", "a"]), (STR, [""] * 4096), (STR, TOKENS[:-1]), (STR, [*TOKENS, "zz"]),
               (STR, [*TOKENS[:-1], TOKENS[7]]), (U32, 5), (I32, [1] * 4096), (STR, [*TOKENS[:-1], "a" * 100_000])],
    "token_type": [(I32, [1]), (I32, [6] * 4096), (I32, [99] * 4096), (F32, [1.0] * 4096), (U32, 1)],
    "merges": [(STR, ["a"]), (STR, [""] * 10), (STR, ["a b c"]), (I32, [1]), (U32, 1)],
    "scores": [(F32, [1.0]), (F32, [NAN] * 4096), (STR, ["x"])],
    "model": [(STR, m) for m in ("", "x", "llama", "bert", "t5", "rwkv", "plamo2", "none", "no_vocab", "whitespace")],
    "pre": [(STR, "x"), (STR, ""), (U32, 1)],
    "bos_token_id": [(U32, 4096), (U32, 2**32 - 1), (I32, -1), (STR, "x")],
    "eos_token_id": [(U32, 4096), (U32, 2**32 - 1)],
    "add_bos_token": [(U32, 1), (BOOL, False)],
}  # fmt: skip
ARCHITECTURES = (
    "",
    "x",
    "clip",
    "bert",
    "t5",
    "mamba",
    "rwkv6",
    "gpt2",
    "gemma3",
    "deepseek2",
    "qwen3",
    "jamba",
    "phi3",
)


def crafted() -> Iterator[tuple[str, Mapping[str, Value], tuple[str, ...]]]:
    """Name of the case, header keys to set, header keys to leave out."""
    sizes = dict.fromkeys(SIZES, SIZE_VALUES) | dict.fromkeys(FLOATS, FLOAT_VALUES) | OTHERS
    for table, prefix in ((sizes, "llama."), (TOKENIZER, "tokenizer.ggml.")):
        for name, values in table.items():
            key = prefix + name
            yield f"without {key}", {}, (key,)
            for kind, value in values:
                yield f"{key} = {str(value)[:60]} ({kind.name})", {key: (kind, value)}, ()
    for n in (0, 1, 2, 7, 8, 64, 2**31):
        yield f"alignment {n}", {"general.alignment": (U32, n)}, ()
    for n in (0, 2, 65535):
        yield f"split.count {n}", {"split.count": (GGUFValueType.UINT16, n), "split.no": (GGUFValueType.UINT16, 0)}, ()
    yield "no architecture", {}, ("general.architecture",)
    yield "an architecture that is a number", {"general.architecture": (U32, 1)}, ()


@pytest.mark.daily
@pytest.mark.slow
def test_crafted_headers(tmp_path: Path) -> None:
    path = tmp_path / "crafted.gguf"
    names: list[str] = []

    def cases() -> Iterator[tuple[list[Any], dict[str, Any]]]:
        for name, put, drop in crafted():
            rewrite(DRAFT, path, put=put, drop=drop)
            names.append(name)
            yield [path], {}

    outcomes = [o for o in load_all(cases()) if assert_harmless(o, names[-1]) is None]
    ends = dict(zip(names, outcomes, strict=True))
    assert len(ends) > 200
    impossible = {
        "block_count": (0, 600), "embedding_length": (0,), "attention.head_count": (0,), "context_length": (2**32 - 1,),
        "rope.dimension_count": (63,), "rope.freq_base": (NAN,), "attention.layer_norm_rms_epsilon": (NAN, -1.0),
    }  # fmt: skip
    for key, values in impossible.items():
        for x in values:
            assert ends[f"llama.{key} = {x} ({'FLOAT32' if isinstance(x, float) else 'UINT32'})"].what == "refused"
    for key in ("logit_scale", "final_logit_softcapping"):  # Llama's graph reads neither, but another's does
        assert {ends[f"llama.{key} = {x} (FLOAT32)"].what for x in (NAN, INF, -INF)} == {"refused"}
    for key in ("kda.gate_lower_bound", "swiglu_clamp_exp", "no_such.number"):  # bounds: infinite is none
        assert {ends[f"llama.{key} = {x} (FLOAT32)"].what for x in (NAN, INF, -INF, 0.0, -1.0)} == {"loaded"}
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.model", "llama.block_count"):
        assert ends[f"without {key}"].what == "refused"
    assert sum(o.what == "loaded" for o in outcomes) > 20


def test_a_wrong_architecture_is_refused(tmp_path: Path) -> None:
    some = ARCHITECTURES[:: size(2, 1)]

    def cases() -> Iterator[tuple[list[Any], dict[str, Any]]]:
        for name in some:
            put = {"general.architecture": (STR, name)}
            put |= {name + k.removeprefix("llama"): v for k, v in header_of(DRAFT).items() if k.startswith("llama.")}
            yield [rewrite(DRAFT, tmp_path / "a.gguf", put=put)], {}

    for name, outcome in zip(some, load_all(cases()), strict=True):
        assert outcome.what == "refused", name
        assert_harmless(outcome, name)


def test_header_values_of_other_architectures_are_ignored(tmp_path: Path) -> None:
    """llama.cpp writes kda.gate_lower_bound = -inf into a file of any architecture (llama-model-saver.cpp)."""
    odd = {key: (F32, x) for x in (NAN, INF, -INF) for key in (f"general.number{x}", f"qwen2.rope.freq_base{x}")}
    path = rewrite(DRAFT, tmp_path / "odd.gguf", put={**odd, "llama.kda.gate_lower_bound": (F32, -INF)})
    with Duo(path, n_ctx=64) as other, Duo(DRAFT, n_ctx=64) as d:
        texts = [x.generate("Once upon a time", temperature=0, max_tokens=12).tokens for x in (other, d)]
    assert texts[0] == texts[1]


@pytest.mark.daily  # of one architecture
def test_gate_bounds_that_an_architecture_needs(tmp_path: Path) -> None:
    """libllama would abort the process: Ling's gates need a bound below 0, and to be safe ones."""
    arch = "bailingmoe3"
    header = {arch + k.removeprefix("llama"): v for k, v in header_of(DRAFT).items() if k.startswith("llama.")}
    header["general.architecture"] = (STR, arch)
    for n in ("key_length", "value_length"):
        header[f"{arch}.attention.{n}_mla"] = (U32, 16)
    for n in ("attention.kv_lora_rank", "ssm.conv_kernel", "kda.head_dim", "expert_shared_count", "expert_gating_func",
              "leading_dense_block_count"):  # fmt: skip
        header[f"{arch}.{n}"] = (U32, 2)
    header[f"{arch}.expert_feed_forward_length"] = (U32, 32)
    gates: list[tuple[float, bool]] = [(-INF, True), (INF, True), (NAN, True), (0.0, True), (1.0, True), (-5.0, False)]

    def cases() -> Iterator[tuple[list[Any], dict[str, Any]]]:
        for x, safe in [*gates, (-5.0, True)]:
            gate: dict[str, Value] = {f"{arch}.kda.gate_lower_bound": (F32, x), f"{arch}.kda.safe_gate": (BOOL, safe)}
            yield [rewrite(DRAFT, tmp_path / "a.gguf", put=header | gate)], {}

    *bad, good = load_all(cases())
    for gate, outcome in zip(gates, bad, strict=True):
        assert outcome.what == "refused", gate
        assert f"{arch}.kda." in outcome.text, gate
    assert good.what == "refused"  # its tensors are not there
    assert ".kda." not in good.text


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    names = ("token_embd.weight", "output_norm.weight", "blk.1.ffn_down.weight", "blk.0.attn_q.weight")

    def cases() -> Iterator[tuple[list[Any], dict[str, Any]]]:
        for name in names:
            without: Any = lambda n, data, name=name: None if n == name else data  # noqa: E731
            yield [rewrite(DRAFT, tmp_path / "m.gguf", weights=without)], {}

    for name, outcome in zip(names, load_all(cases()), strict=True):
        assert outcome.what == "refused", name
        assert name in outcome.text


# ---- pairs


def test_vocabularies_that_differ_are_translated(tmp_path: Path) -> None:
    tokens = "tokenizer.ggml.tokens"
    words = list(TOKENS)
    words[300], words[2000] = "other\n", "another"
    strange = [*TOKENS[:5], *(f"x-{i}" for i in range(5, len(TOKENS)))]
    changes: list[dict[str, Value]] = [
        {tokens: (STR, words)},
        {tokens: (STR, ["<a>", "<b>", *TOKENS[2:]])},
        {"tokenizer.ggml.bos_token_id": (U32, 2)},
        {"tokenizer.ggml.add_bos_token": (BOOL, False)},
        {"tokenizer.ggml.add_eos_token": (BOOL, True)},
        {"tokenizer.ggml.model": (STR, "rwkv")},  # whatever it says, no process ends
        {tokens: (STR, strange)},
    ]

    def cases() -> Iterator[tuple[list[Any], dict[str, Any]]]:
        for put in changes:
            yield [TARGET, rewrite(DRAFT, tmp_path / "draft.gguf", put=put)], {}

    found = list(load_all(cases()))
    for put, outcome in zip(changes, found, strict=True):
        assert_harmless(outcome, str(put)[:80])
    assert [o.what for o in found[:5]] == ["loaded"] * 5
    assert f"token 5 is 'x-5' in the draft and '{TOKENS[5]}' in the target" in found[-1].text


@pytest.mark.parametrize("n_more", mostly_daily([-500, -129, -128, -1, 1, 128, 129, 1000], [-129, 128]))
def test_vocabularies_of_other_sizes(n_more: int, tmp_path: Path) -> None:
    """llama.cpp's rule: up to 128 tokens more or fewer are padding. The text is the target's all the same."""
    n = 4096 + n_more

    def weights(name: str, data: Any) -> Any:
        if name not in ("token_embd.weight", "output.weight"):
            return data
        return np.concatenate([data, data[:n_more]]) if n_more > 0 else data[:n]

    words = (TOKENS + [f"more{i}" for i in range(n_more)])[:n]
    put = {"tokenizer.ggml.tokens": (STR, words), "tokenizer.ggml.token_type": (I32, [3] * 5 + [1] * (n - 5)),
           "llama.vocab_size": (U32, n)}  # fmt: skip
    path = rewrite(DRAFT, tmp_path / "draft.gguf", put=put, weights=weights)
    with Duo(TARGET, path, n_ctx=256, strict=True) as pair, Duo(TARGET, n_ctx=256, strict=True) as alone:
        assert (pair.engine.shared_vocabulary is None) == (abs(n_more) <= 128)  # else guesses are translated
        for options in ({"temperature": 0}, {"seed": 3}, {"logit_bias": {4095: 50.0}, "seed": 1}):
            text = pair.generate("Once upon a time", max_tokens=60, **options)
            assert text.tokens == alone.generate("Once upon a time", max_tokens=60, **options).tokens
            assert text.warning == ""
        # Tokens that the draft cannot read.
        prompt = [0, 300, 4095, 301, 4000]
        assert (
            pair.generate(prompt, temperature=0, max_tokens=40).tokens
            == alone.generate(prompt, temperature=0, max_tokens=40).tokens
        )


# ---- what mutated headers have shown (benchmarks/torture): each ended the process, or took all memory


def test_lists_where_a_single_number_belongs(tmp_path: Path) -> None:
    """duo took the largest value for the number of layers, and made a list as long."""
    for name in ("block_count", "embedding_length", "context_length"):
        path = rewrite(DRAFT, tmp_path / "list.gguf", put={f"llama.{name}": (U32, [2, 2**32 - 1])})
        with pytest.raises(BadValueError, match=rf"llama\.{name} is a list"):
            read_header(path)
    path = rewrite(DRAFT, tmp_path / "list.gguf", put={"llama.attention.head_count": (U32, [4, 2**31])})
    with pytest.raises(BadValueError, match=r"head_count is 2147483648"):
        read_header(path)


def test_attention_without_heads(tmp_path: Path) -> None:
    """libllama divides by their number."""
    header = {"olmo2" + k.removeprefix("llama"): v for k, v in header_of(DRAFT).items() if k.startswith("llama.")}
    header |= {"general.architecture": (STR, "olmo2"), "olmo2.attention.head_count": (U32, 0)}
    outcome = load(rewrite(DRAFT, tmp_path / "heads.gguf", put=header))
    assert outcome.what == "refused"
    assert "olmo2.attention.head_count is 0" in outcome.text


def test_weights_of_a_type_that_no_weight_has(tmp_path: Path) -> None:
    """No kernel computes with it, and libggml calls the kernel nevertheless. Some were found by benchmarks/torture."""
    wrong = [("blk.1.ssm_out.weight", 9, "q8_1"), ("blk.0.ssm_in.weight", 26, "i32"), ("output_norm.weight", 26, "i32"),
             ("blk.1.ssm_out.weight", 24, "i8")]  # fmt: skip
    data, path = tiny_mamba(DRAFT, tmp_path / "mamba.gguf").read_bytes(), tmp_path / "type.gguf"

    def cases() -> Iterator[tuple[list[Any], dict[str, Any]]]:
        for name, number, _ in wrong:
            begin = data.index(len(name).to_bytes(8, "little") + name.encode()) + 8 + len(name)
            at = begin + 4 + 8 * int.from_bytes(data[begin : begin + 4], "little")  # behind the shape
            assert data[at : at + 4] == bytes(4)
            path.write_bytes(data[:at] + number.to_bytes(4, "little") + data[at + 4 :])
            yield [path], {}

    for (name, _, type_name), outcome in zip(wrong, load_all(cases()), strict=True):
        assert outcome.what == "refused", name
        assert f"its tensor {name} has the type {type_name}" in outcome.text


def test_states_of_another_width(tmp_path: Path) -> None:
    head = TARGET.with_name("duo-demo-eagle3-q8_0.gguf")
    path = rewrite(head, tmp_path / "head.gguf", put={"eagle3.embedding_length_out": (U32, 255)})
    outcome = load(TARGET, path)
    assert outcome.what == "refused"
    assert "eagle3.embedding_length_out is 255" in outcome.text
