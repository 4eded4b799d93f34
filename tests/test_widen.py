"""A widened model says what the small one says, and is as big as was asked for."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_files import tiny_gemma3
from model_files import random_model
from sizes import mostly_daily
from stock_model import Floats, Model

from duo.gguf_tools.whole_file import CheckedGgufReader
from duo.gguf_tools.widen import SAME, TYPES, WidenReport, widen
from duo.models.demo import demo_pair

pytestmark = pytest.mark.full

TARGET, DRAFT = demo_pair()
PROMPTS = ("Once upon a time there was a", "def main(argv=None):\n    parser =")


def says(path: Path) -> list[tuple[list[int], Floats]]:
    """What libllama computes on a new thread: PyTorch, used by other tests, changes the tile registers of this one."""
    model = Model(path)
    try:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: [model.greedy(prompt) for prompt in PROMPTS]).result()
    finally:
        model.close()


def assert_says_the_same(path: Path, other: Path) -> None:
    for (tokens, logits), (tokens_other, logits_other) in zip(says(path), says(other), strict=True):
        assert tokens == tokens_other
        np.testing.assert_allclose(logits, logits_other, rtol=0, atol=1e-3)


def write_llama(path: Path) -> None:
    """A llama model with what the demo pair lacks: KV groups, biases, RoPE factors, output tied to the embeddings."""
    source = CheckedGgufReader(DRAFT)
    n_embd, n_ff, n_vocab, n_kv = 128, 192, 4096, 64
    writer = gguf.GGUFWriter(path, "llama")
    for key, field in source.fields.items():
        if key.startswith("tokenizer."):
            sub_type = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], sub_type)
    writer.add_context_length(256)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(n_ff)
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_size_label("1M")
    rng = np.random.default_rng(1)
    dims: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_vocab, n_embd), "output_norm.weight": (n_embd,)}
    dims["rope_freqs.weight"] = (16,)
    for layer in ("blk.0.", "blk.1."):
        dims |= {f"{layer}attn_norm.weight": (n_embd,), f"{layer}ffn_norm.weight": (n_embd,)}
        dims |= {f"{layer}attn_q.weight": (n_embd, n_embd), f"{layer}attn_output.weight": (n_embd, n_embd)}
        dims |= {f"{layer}attn_{x}.weight": (n_kv, n_embd) for x in "kv"}
        dims |= {f"{layer}ffn_{x}.weight": (n_ff, n_embd) for x in ("gate", "up")}
        dims |= {f"{layer}ffn_down.weight": (n_embd, n_ff)}
        dims |= {f"{layer}attn_q.bias": (n_embd,), f"{layer}attn_k.bias": (n_kv,), f"{layer}attn_v.bias": (n_kv,)}
    for name, shape in dims.items():
        writer.add_tensor(name, rng.normal(1.0 if len(shape) == 1 else 0.0, 0.15, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def big(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "big.gguf"
    yield path
    path.unlink(missing_ok=True)  # pytest keeps the directories of several runs


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        pytest.param(TARGET, {"n_embd": 1280, "n_ff": 1024, "n_layer": 6}, marks=pytest.mark.daily),
        (DRAFT, {"n_embd": 768, "n_ff": 512, "n_layer": 2}),
        pytest.param(DRAFT, {"n_embd": 3072}, marks=pytest.mark.daily),
    ],
)
def test_four_or_sixteen_times_the_width_is_exact(source: Path, wanted: dict[str, int], big: Path) -> None:
    widen(source, big, **wanted)  # type: ignore[arg-type]
    assert_says_the_same(big, source)


@pytest.mark.daily
@pytest.mark.parametrize("n_embd", [352, 512, 1024])
def test_any_other_width_differs_by_rounding(n_embd: int, big: Path) -> None:
    widen(TARGET, big, n_embd=n_embd, n_ff=1024)
    for (tokens, logits), (tokens_big, logits_big) in zip(says(TARGET), says(big), strict=True):
        n_same = next((i for i, (a, b) in enumerate(zip(tokens, tokens_big, strict=True)) if a != b), len(tokens))
        n_compared = len(logits) - len(tokens) + n_same
        # Activations are rounded to 8 bits, where the last bit of a norm may tip one over; logits spread over 15.
        np.testing.assert_allclose(logits_big[:n_compared], logits[:n_compared], rtol=0, atol=0.4)


@pytest.mark.daily  # the others add layers, too
def test_added_layers_add_nothing(big: Path) -> None:
    widen(TARGET, big, n_layer=9)
    assert_says_the_same(big, TARGET)


@pytest.mark.slow
@pytest.mark.parametrize("type", mostly_daily(TYPES, ("q4_0",)))
def test_every_type_is_exact_in_itself(type: str, big: Path) -> None:
    same_width = big.with_name("same_width.gguf")
    widen(DRAFT, same_width, n_embd=192, type=type)
    widen(DRAFT, big, n_embd=768, n_ff=768, n_layer=3, type=type.upper())
    assert_says_the_same(big, same_width)


@pytest.mark.daily
@pytest.mark.parametrize("type", ["f32", "q8_0"])
def test_groups_biases_rope_factors_and_tied_output(type: str, big: Path) -> None:
    small, same_width = big.with_name("small.gguf"), big.with_name("same_width.gguf")
    write_llama(small)
    widen(small, same_width, n_embd=128, type=type)
    report = widen(small, big, n_embd=512, n_ff=448, n_layer=3, type=type)
    assert_says_the_same(big, same_width)
    reader = CheckedGgufReader(big)
    assert reader.fields["llama.attention.head_count"].contents() == 16
    assert reader.fields["llama.attention.head_count_kv"].contents() == 8
    assert "general.size_label" not in reader.fields
    assert report.n_parameters == sum(tensor.n_elements for tensor in reader.tensors)


@pytest.mark.daily  # test_each_weight_keeps_its_type has a model with biases
@pytest.mark.parametrize("type", ["f32", "q8_0"])
def test_qwen2_with_its_biases(type: str, big: Path) -> None:
    small = random_model(big.with_name("small.gguf"), "qwen2", "f32")
    same_width = big.with_name("same_width.gguf")
    widen(small, same_width, n_embd=256, type=type)
    widen(small, big, n_embd=1024, n_ff=768, n_layer=3, type=type)
    assert_says_the_same(big, same_width)
    reader = CheckedGgufReader(big)
    assert reader.fields["qwen2.attention.head_count"].contents() == 16
    biases = {t.name: t.data for t in reader.tensors if t.name.endswith(".bias")}
    assert len(biases) == 9 and biases["blk.1.attn_q.bias"].any() and not biases["blk.2.attn_q.bias"].any()


@pytest.mark.parametrize("type", mostly_daily(["f32", "q8_0"], ["f32"]))
def test_gemma3_with_its_scaled_embeddings_and_norms(type: str, big: Path) -> None:
    """The window is shorter than the texts, so layers see different parts of them."""
    small = tiny_gemma3(TARGET, big.with_name("small.gguf"), window=8)
    same_width = big.with_name("same_width.gguf")
    widen(small, same_width, n_embd=64, type=type)
    widen(small, big, n_embd=256, n_ff=192, n_layer=4, type=type)
    assert_says_the_same(big, same_width)
    fields = CheckedGgufReader(big).fields
    assert fields["gemma3.attention.head_count"].contents() == 8
    assert fields["gemma3.attention.layer_norm_rms_epsilon"].contents() == pytest.approx(1e-6)


def test_gemma3_at_another_width_differs_by_rounding(big: Path) -> None:
    small = tiny_gemma3(TARGET, big.with_name("small.gguf"), window=8)
    widen(small, big, n_embd=160, type="f32")
    for (tokens, logits), (tokens_big, logits_big) in zip(says(small), says(big), strict=True):
        assert tokens == tokens_big
        np.testing.assert_allclose(logits_big, logits, rtol=0, atol=0.05)  # they spread over 200


@pytest.mark.parametrize(
    ("architecture", "type"),
    mostly_daily([("qwen2", "q4_K"), ("llama", "q6_K"), ("qwen2", "q5_0")], [("qwen2", "q4_K")]),
)
def test_each_weight_keeps_its_type(architecture: str, type: str, big: Path) -> None:
    def type_of(name: str) -> str:
        return "q6_K" if name in ("output.weight", "blk.1.ffn_down.weight") else type

    small = random_model(big.with_name("small.gguf"), architecture, type_of)
    widen(small, big, n_embd=1024, n_ff=1024, n_layer=4, type=SAME)
    assert_says_the_same(big, small)
    own = {t.name: t for t in CheckedGgufReader(small).tensors}
    for tensor in CheckedGgufReader(big).tensors:
        name = tensor.name.replace("blk.2.", "blk.0.").replace("blk.3.", "blk.1.")
        assert tensor.tensor_type == own[name].tensor_type, tensor.name
        if len(tensor.shape) == 2 and name == tensor.name:
            rows, n_bytes = own[name].data.shape
            np.testing.assert_array_equal(tensor.data[:rows, :n_bytes], own[name].data)
            assert tensor.name == "token_embd.weight" or tensor.data[:rows, n_bytes:].any()


def test_a_width_that_heads_do_not_fill(big: Path) -> None:
    widen(TARGET, big, n_embd=352)
    fields = CheckedGgufReader(big).fields
    assert fields["llama.attention.head_count"].contents() == 5
    assert fields["llama.attention.key_length"].contents() == 64


def test_blocks_are_carried_over_and_padding_meets_zeros(big: Path) -> None:
    widen(TARGET, big, n_embd=512, n_ff=1024)
    small_tensors = {tensor.name: tensor for tensor in CheckedGgufReader(TARGET).tensors}
    for tensor in CheckedGgufReader(big).tensors:
        small = small_tensors[tensor.name]
        if tensor.tensor_type is gguf.GGMLQuantizationType.Q8_0:
            n_rows, n_bytes = small.data.shape
            assert np.array_equal(tensor.data[:n_rows, :n_bytes], small.data), tensor.name
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
            assert not values[n_rows:, : int(small.shape[0])].any(), tensor.name
            is_embedding = tensor.name == "token_embd.weight"
            assert bool(values[:, int(small.shape[0]) :].any()) != is_embedding, tensor.name
        else:
            np.testing.assert_allclose(tensor.data[:320], small.data * np.sqrt(320 / 512), rtol=1e-6)
            assert not tensor.data[320:].any()


@pytest.mark.daily
def test_metadata(big: Path) -> None:
    widen(TARGET, big, n_embd=640, n_layer=5, type="f16")
    small, fields = CheckedGgufReader(TARGET).fields, gguf.GGUFReader(big).fields
    for key in small:
        if key.startswith("tokenizer.") or key in ("llama.context_length", "llama.rope.freq_base", "llama.vocab_size"):
            assert fields[key].contents() == small[key].contents(), key
            assert fields[key].types == small[key].types, key
    assert "widened" in fields["general.name"].contents()
    assert fields["general.file_type"].contents() == 1
    assert fields["llama.block_count"].contents() == 5
    assert fields["llama.attention.head_count"].contents() == 10
    assert fields["llama.attention.layer_norm_rms_epsilon"].contents() == pytest.approx(5e-6)


@pytest.mark.daily
@pytest.mark.parametrize(("size", "type"), [(4e7, "q8_0"), (1e8, "f16"), (6e7, "q4_0")])
def test_size(size: float, type: str, big: Path) -> None:
    steps: list[tuple[int, int]] = []
    report = widen(DRAFT, big, size=size, type=type, progress=lambda _, done, total: steps.append((done, total)))
    assert report.bytes == big.stat().st_size == pytest.approx(size, rel=0.03)
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1] <= report.bytes
    assert report.n_embd % 256 == 0


def test_size_with_a_dimension_given(big: Path) -> None:
    report = widen(DRAFT, big, size=6e7, n_embd=768, n_ff=1024)
    assert (report.n_embd, report.n_ff) == (768, 1024)
    assert report.bytes == pytest.approx(6e7, rel=0.1)


@pytest.mark.daily
def test_memory_does_not_grow_with_the_output(big: Path) -> None:
    tracemalloc.start()
    try:
        widen(TARGET, big, size=4e8)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100e6


def test_report_is_what_was_written(big: Path) -> None:
    report = widen(DRAFT, big, n_embd=256, n_ff=768, n_layer=3)
    n_parameters = sum(tensor.n_elements for tensor in CheckedGgufReader(big).tensors)
    assert report == WidenReport(big, big.stat().st_size, 256, 768, 3, n_parameters)
