"""Arguments of llama_cpp.Llama: taken, taken without effect, or refused by name."""

from collections.abc import Iterator
from typing import Any

import llama_cpp
import pytest
from llama_code import DRAFT, LOAD, MESSAGES, PROMPT, TARGET

from duo import Duo, DuoError


@pytest.fixture(scope="module")
def pair() -> Iterator[Duo]:
    with Duo(draft=DRAFT, **LOAD) as d:
        yield d


@pytest.mark.parametrize(
    "options",
    [
        {"logits_processor": [1]},
    ],
    ids=str,
)
def test_unsupported_arguments_are_refused_by_name(pair: Duo, options: dict[str, Any]) -> None:
    with pytest.raises(DuoError, match=next(iter(options))):
        pair.create_completion(PROMPT, **options)


def test_arguments_without_effect_are_accepted_and_unknown_ones_refused(pair: Duo) -> None:
    pair(PROMPT, max_tokens=1, suffix=None, typical_p=1.0, mirostat_mode=0, mirostat_tau=4.0, tfs_z=1.0, mode="plain")
    for call in (pair, pair.create_completion):
        with pytest.raises(TypeError, match="top_q"):
            call(PROMPT, top_q=1)
    with pytest.raises(TypeError, match="functions"):
        pair(PROMPT, functions=None)
    for options, why in (({"functions": [{}]}, "tool 0"), ({"tool_choice": {"type": "function"}}, "tool_choice")):
        with pytest.raises(DuoError, match=why):
            pair.create_chat_completion(MESSAGES, **options)  # type: ignore[arg-type]


def test_the_constructor_knows_llama_cpps_names() -> None:
    sizes = {"n_ctx": 256, "n_batch": 64, "n_threads": 1, "n_gpu_layers": -1, "last_n_tokens_size": 16}
    more = {
        "flash_attn": False,
        "use_mmap": False,
        "type_k": 8,
        "seed": 2**32 - 1,
        "rope_freq_base": 0.0,
        "numa": False,
        "split_mode": llama_cpp.LLAMA_SPLIT_MODE_LAYER,
        "yarn_attn_factor": 1.0,
        "lora_path": None,
    }
    with Duo(model_path=TARGET, chat_template="llama-3", **sizes, **more) as d:
        assert (d.options["load_mode"], d.options["type_k"], d.options["flash_attn"]) == ("none", "q8_0", "off")
        assert (d.options["split_mode"], d.options["numa"], d.options["yarn_attn_factor"]) == ("layer", None, -1.0)
        assert "<|start_header_id|>" in d.chat_template.render(MESSAGES)
    for options, why in (
        ({"lora_path": "no/such.gguf"}, "no LoRA adapter 'no/such.gguf'"),
        ({"rope_freq_base": -1.0}, "rope_freq_base"),
        ({"draft_model": len}, "draft="),
        ({"embedding": True}, "embedding and cannot write"),
        ({"vocab_only": True}, "vocab_only or embedding and cannot write"),
        ({"swa_full": False}, "swa_full is False"),
        ({"split_mode": 7}, "split_mode"),
        ({"chat_format": "no-such"}, "no-such"),
        ({"chat_handler": 3}, "chat_handler is int"),
        ({"kv_overrides": {"k": [1]}}, "kv_overrides"),
    ):
        with pytest.raises(DuoError, match=why), Duo(model_path=TARGET, **options) as d:
            d.create_chat_completion(MESSAGES)
    with pytest.raises(TypeError, match="both model and model_path"):
        Duo(TARGET, model_path=TARGET)
    with pytest.raises(TypeError, match="n_gpu_layer"):
        Duo(model_path=TARGET, n_gpu_layer=1)


def test_values_of_the_wrong_kind_are_one_sentence(pair: Duo) -> None:
    for options, why in (
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"stop": [""]}, "stop string"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"grammar": 3}, "grammar"),
    ):
        with pytest.raises(DuoError, match=why):
            pair(PROMPT, **options)
    with pytest.raises(DuoError, match="outside the vocabulary"):
        pair([0, 99_999])
    for echo in (False, True):
        with pytest.raises(DuoError, match=r"token 0 of the prompt is 1\.5"):
            pair([1.5, "a"], echo=echo)
    assert pair("", max_tokens=2)["usage"]["prompt_tokens"] == 1  # type: ignore[index]  # BOS alone
