"""Arguments of llama_cpp.Llama's constructor that change what a model writes: the same text from both."""

from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import pytest
from conftest import need_llama_cpp

from duo import BadValueError, Duo, DuoError
from duo.gguf_tools.whole_file import CheckedGgufReader
from duo.models.demo import demo_pair

TARGET, DRAFT = demo_pair()
LOAD: dict[str, Any] = {"model_path": str(TARGET), "n_ctx": 1024, "verbose": False, "seed": 7}
SAME = {"cpu_kernels": "stock", "flash_attn": "off"}  # llama_cpp's sums, which others round otherwise
PROMPT = "Once upon a time"


def lora_of(path: Path, seed: int, alpha: float = 2.0) -> Path:
    """An adapter for some of the target's matrices, of rank 2."""
    reader = CheckedGgufReader(TARGET)
    arch = reader.fields["general.architecture"].contents()
    w, random = gguf.GGUFWriter(str(path), arch), np.random.default_rng(seed)
    w.add_string("general.type", "adapter")
    w.add_string("adapter.type", "lora")
    w.add_float32("adapter.lora.alpha", alpha)
    for t in reader.tensors:
        if t.name.endswith(("ffn_down.weight", "attn_q.weight")):
            n_in, n_out = (int(n) for n in t.shape)
            w.add_tensor(f"{t.name}.lora_a", random.normal(0, 0.3, (2, n_in)).astype(np.float32))
            w.add_tensor(f"{t.name}.lora_b", random.normal(0, 0.3, (n_out, 2)).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def test_arguments_of_the_constructor_change_the_text_as_there(tmp_path: Path) -> None:
    need_llama_cpp()
    lora = str(lora_of(tmp_path / "a.gguf", 1))
    key = "llama.attention.layer_norm_rms_epsilon"
    found = set()
    for options in (
        {},
        {"rope_freq_base": 100.0},
        {"rope_freq_scale": 0.25, "rope_scaling_type": llama_cpp.LLAMA_ROPE_SCALING_TYPE_LINEAR},
        {"kv_overrides": {key: 0.2, "tokenizer.ggml.add_bos_token": True, "general.name": "x"}},
        {"lora_path": lora},
        {"lora_path": lora, "lora_scale": -2.0},
    ):
        llama = llama_cpp.Llama(**LOAD, **options)
        with Duo(draft=DRAFT, **SAME, **LOAD, **options) as d:
            theirs, ours = (x(PROMPT, max_tokens=24, temperature=0)["choices"][0]["text"] for x in (llama, d))
            for name in ("lora_path", "lora_scale", "lora_base", "kv_overrides", "tensor_split", "numa"):
                assert getattr(d, name) == getattr(llama, name)
        llama.close()
        assert ours == theirs, options
        found.add(ours)
    assert len(found) == 6


def test_an_adapter_with_duos_kernels_and_one_that_does_not_fit(tmp_path: Path) -> None:
    lora = lora_of(tmp_path / "a.gguf", 1)
    with Duo(TARGET, DRAFT, n_ctx=256, lora=lora, cpu_kernels="duo", flash_attn="off") as d:
        assert d.target.n_duo_products == 0
        one = d.generate(PROMPT, max_tokens=24, temperature=0).text
    with Duo(TARGET, n_ctx=256, lora_scaled=f"{lora}:1.0", cpu_kernels="stock", flash_attn="off") as d:
        assert d.generate(PROMPT, max_tokens=24, temperature=0).text == one
    for bad, why in ((TARGET, "could not be loaded"), (tmp_path / "none", "no LoRA adapter"), ("", "lora")):
        with pytest.raises(DuoError, match=why):
            Duo(TARGET, n_ctx=64, lora=bad)
    for options, why in (
        ({"lora_path": [str(lora)]}, "give one file, or several with lora="),
        ({"lora_path": lora, "lora_scaled": {str(lora): 1.0}}, "were both given"),
    ):
        with pytest.raises(BadValueError, match=why):
            Duo(TARGET, n_ctx=64, **options)
    endless = lora_of(tmp_path / "inf.gguf", 1, float("inf"))
    why = "computes NaN instead of numbers; try it without its adapters"
    with Duo(TARGET, n_ctx=64, lora=endless) as d, pytest.raises(BadValueError, match=why):
        d.generate(PROMPT)
