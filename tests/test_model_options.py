"""The options of one model, made from the keywords: each `_draft` keyword reaches the draft alone."""

import re
from typing import Any

import pytest

from duo.errors import BadValueError
from duo.options.context import ContextOptions
from duo.options.host import NOT_A_DRAFTS
from duo.options.model import ModelOptions
from duo.options.tables import ENGINE_OPTIONS
from duo.options.validate import engine_options

# A projector is no part of its model's options.
TWINS = [name for name in ENGINE_OPTIONS if f"{name}_draft" in ENGINE_OPTIONS and name != "mmproj"]
VALUES: dict[str, Any] = {
    "n_gpu_layers": 3, "device": "CUDA0", "n_ctx": 99, "n_threads": 3, "n_threads_batch": 3, "cpu_mask": "0x6",
    "cpu_range": "1-2", "type_k": "q8_0", "type_v": "q8_0", "override_tensor": "ffn=CPU",
    "cpu_moe": True, "n_cpu_moe": 2, "packed": "off", "cpu_mask_batch": "0x6", "cpu_range_batch": "1-2",
    "cpu_strict": True, "cpu_strict_batch": True, "prio_batch": 2,
}  # fmt: skip


def both(**given: Any) -> tuple[ModelOptions, ModelOptions]:
    o = engine_options(given)
    return ModelOptions.of(o, "target"), ModelOptions.of(o, "draft")


def test_every_twin_has_a_value_here() -> None:
    assert sorted(VALUES) == sorted(TWINS)


@pytest.mark.parametrize("name", sorted(VALUES.keys() - {"cpu_strict"}))  # the target's is the draft's default
def test_a_twin_is_about_one_model(name: str) -> None:
    target, draft = both()
    first, second = both(**{name: VALUES[name]}), both(**{f"{name}_draft": VALUES[name]})
    assert first[0] != target and first[1] == draft
    assert second[0] == target and second[1] != draft
    assert first[0].flag(name) != first[1].flag(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tensor_split", "3,1"),
        ("split_mode", "none"),
        ("main_gpu", 1),
        ("lora", "a.gguf"),
        ("rope_freq_base", 5.0),
        ("n_cpu_ffn", 2),
    ],
)
def test_options_that_a_draft_does_not_have_reach_the_target_only(name: str, value: Any) -> None:
    assert name in NOT_A_DRAFTS
    changed = both(**{name: value})
    assert changed[0] != both()[0] and changed[1] == both()[1]


def test_common_options_reach_both() -> None:
    for name, value in {"n_batch": 100, "flash_attn": "on", "load_mode": "mmap", "cpu_kernels": "stock"}.items():
        changed = both(**{name: value})
        assert all(new != old for new, old in zip(changed, both(), strict=True)), name
    assert both(n_batch=100)[0].n_ubatch == 100
    assert set(both()[0].context) == set(ContextOptions.__annotations__)


def test_experts_on_the_cpu_are_overrides_after_the_users() -> None:
    found = both(override_tensor="exps=CUDA0", n_cpu_moe=2, n_cpu_ffn=1, cpu_moe_draft=True)
    names = ["blk.0.ffn_up_exps.weight", "blk.1.ffn_gate_up_exps.weight", "blk.11.ffn_up_exps.weight",
             "blk.0.ffn_up.weight", "blk.1.ffn_up.weight", "blk.0.ffn_down_chexps.weight"]  # fmt: skip

    def on_cpu(m: ModelOptions) -> list[bool]:
        return [any(re.search(p, name) for p, memory in m.override_tensors if memory == "CPU") for name in names]

    assert on_cpu(found[0]) == [True, True, False, True, False, True]
    assert on_cpu(found[1]) == [True, True, True, False, False, True]
    assert found[0].override_tensors[0] == ("exps", "CUDA0") and len(found[1].override_tensors) == 1


def test_mistakes_name_the_option_of_their_model() -> None:
    for given, flag in (({"cpu_mask": "0x0"}, "-C"), ({"override_tensor": "x"}, "-ot"), ({"cpu_range": "x"}, "-Cr")):
        with pytest.raises(BadValueError, match=rf"\({flag}\)"):
            both(**given)
        with pytest.raises(BadValueError, match=rf"\({flag}d\)"):
            both(**{f"{name}_draft": value for name, value in given.items()})
