"""Options that replace what the target's file says (position encoding, header, adapters), of offloading, and NUMA."""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from duo.options.markers import BeforeValidator, Field
from duo.options.option import Int, opt

RopeScaling = Literal["none", "linear", "yarn", "longrope"]
Numa = Literal["distribute", "isolate", "numactl", "mirror"]
Factor = Annotated[float, Field(ge=-1.0, le=1e9, allow_inf_nan=False)]

HOW = "input should be KEY=TYPE:VALUE with the type int, float, bool or str"
N_TEXT = 127  # bytes of a key, and of a text (llama.h, llama_model_kv_override)


def _read(text: str) -> tuple[str, bool | int | float | str]:
    match = re.fullmatch(r"([^=]+)=(int|float|bool|str):(.*)", text.strip(), re.DOTALL)
    if match is None:
        raise ValueError(HOW)
    key, kind, value = match.groups()
    try:
        if kind == "bool":
            return key, {"true": True, "false": False}[value]
        return key, {"int": int, "float": float, "str": str}[kind](value)
    except (KeyError, ValueError):
        raise ValueError(f"{HOW}; {value!r} is not of type {kind}") from None


def _overrides(value: Any) -> Any:
    """A mapping as llama_cpp has it, or llama.cpp's KEY=TYPE:VALUE, comma-separated."""
    values = value
    if isinstance(value, str):  # a comma may be part of a text
        values = {}
        for key, x in map(_read, re.split(r",(?=[^=,]+=(?:int|float|bool|str):)", value)):
            values.setdefault(key, x)  # the first counts, as in llama.cpp
    if not isinstance(values, Mapping):
        raise ValueError(HOW)
    for key, x in values.items():
        if not isinstance(key, str) or not 0 < len(key.encode()) <= N_TEXT or "\0" in key:
            raise ValueError(f"a key has 1 to {N_TEXT} bytes")
        if not isinstance(x, bool | int | float | str):
            raise ValueError(f"{key} is {type(x).__name__}; a value is a bool, int, float or str")
        if isinstance(x, str) and (len(x.encode()) > N_TEXT or "\0" in x):
            raise ValueError(f"the text of {key} is longer than {N_TEXT} bytes")
        if isinstance(x, int) and not -(2**63) <= x < 2**63:
            raise ValueError(f"{key} is {x}, which needs more than 64 bits")
    return dict(values)


Overrides = Annotated[dict[str, Any], BeforeValidator(_overrides)]


def _files(value: Any) -> Any:
    """One path, llama.cpp's comma-separated ones, or a list."""
    values = value.split(",") if isinstance(value, str) else [value] if isinstance(value, os.PathLike) else value
    if not isinstance(values, list | tuple) or not values or not all(isinstance(f, str | os.PathLike) for f in values):
        raise ValueError("input should be a file, or several of them separated by commas")
    if not all(map(os.fspath, values)):
        raise ValueError("the name of a file is empty")
    return [os.fspath(f) for f in values]


def _scaled(value: Any) -> Any:
    """A mapping of files to scales, or llama.cpp's FILE:SCALE, comma-separated."""
    if isinstance(value, str):
        parts = [part.rpartition(":") for part in value.split(",")]
        value = {name: scale for name, _, scale in parts}
        if len(value) < len(parts):
            raise ValueError("a file is given twice; give it once, with one scale")
    try:
        values = {os.fspath(name): float(scale) for name, scale in value.items()}
    except (AttributeError, TypeError, ValueError):
        values = {}
    if not values or not all(values) or not all(abs(scale) <= 1e6 for scale in values.values()):
        raise ValueError("input should be FILE:SCALE, or several of them separated by commas")
    return values


Files = Annotated[list[str], BeforeValidator(_files)]
ScaledFiles = Annotated[dict[str, float], BeforeValidator(_scaled)]


def _range(value: Any) -> Any:
    """Two numbers, from the command line as text; as in llama.cpp, 0 or less: from the first, to the last."""
    try:
        first, last = (max(0, int(x)) for x in value)
    except (TypeError, ValueError):
        raise ValueError("input should be two layers, START and END") from None
    if last and last < first:
        raise ValueError("the last layer comes before the first")
    return first, last


LayerRange = Annotated[tuple[Int, Int], BeforeValidator(_range)]


class OffloadOptions(TypedDict, total=False):
    """Options of both models that matter only with a GPU."""

    offload_kqv: Annotated[
        bool,
        opt(
            True,
            "Keep the KV cache and attention of each layer on the layer's device; otherwise on the CPU.",
            "-kvo/-nkvo",
            "--kv-offload/--no-kv-offload",
            env="KV_OFFLOAD",
        ),
    ]
    op_offload: Annotated[
        bool,
        opt(True, "Let a GPU compute prompts with weights that are on the CPU.", "--op-offload/--no-op-offload"),
    ]  # fmt: skip


class ContextOptions(TypedDict, total=False):
    """Options of the target, except `numa`, which is for the whole process."""

    rope_scaling_type: Annotated[
        RopeScaling | None,
        opt(None, "RoPE scaling of the target. Default: the model's own.", "--rope-scaling", env="ROPE_SCALING_TYPE"),
    ]
    rope_freq_base: Annotated[
        Annotated[float, Field(ge=0.0, le=1e12, allow_inf_nan=False)],
        opt(0.0, "Base frequency of RoPE; 0: the model's own.", "--rope-freq-base", env="ROPE_FREQ_BASE"),
    ]
    rope_freq_scale: Annotated[
        Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)],
        opt(0.0, "Scale of RoPE's frequencies: 1/N stretches the context N times; 0: the model's own.",
            "--rope-freq-scale", env="ROPE_FREQ_SCALE"),
    ]  # fmt: skip
    yarn_orig_ctx: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 1)],
        opt(
            0,
            "YaRN: context that the model was trained with, in tokens; 0: the model's own.",
            "--yarn-orig-ctx",
            env="YARN_ORIG_CTX",
        ),
    ]
    yarn_ext_factor: Annotated[
        Factor,
        opt(
            -1.0, "YaRN: share of extrapolation; negative: the model's own.", "--yarn-ext-factor", env="YARN_EXT_FACTOR"
        ),
    ]
    yarn_attn_factor: Annotated[
        Factor,
        opt(-1.0, "YaRN: scale of attention; negative: the model's own.", "--yarn-attn-factor", env="YARN_ATTN_FACTOR"),
    ]
    yarn_beta_slow: Annotated[
        Factor,
        opt(
            -1.0,
            "YaRN: high correction dimension; negative: the model's own.",
            "--yarn-beta-slow",
            env="YARN_BETA_SLOW",
        ),
    ]
    yarn_beta_fast: Annotated[
        Factor,
        opt(
            -1.0, "YaRN: low correction dimension; negative: the model's own.", "--yarn-beta-fast", env="YARN_BETA_FAST"
        ),
    ]
    kv_overrides: Annotated[
        Overrides | None,
        opt(None, "Values that replace those in the header of the target's file.", "--override-kv",
            metavar="KEY=TYPE:VALUE,..."),
    ]  # fmt: skip
    lora: Annotated[
        Files | None,
        opt(None, "LoRA adapters for the target (GGUF). llama.cpp's kernels then compute it on the CPU.", "--lora",
            metavar="FILE,FILE"),
    ]  # fmt: skip
    lora_scaled: Annotated[
        ScaledFiles | None,
        opt(None, "LoRA adapters for the target, each with a factor.", "--lora-scaled", metavar="FILE:SCALE,..."),
    ]
    lora_init_without_apply: Annotated[
        bool,
        opt(False, "Load the LoRA adapters with the scale 0. A server sets their scales later (POST /lora-adapters), a "
                   "program with Duo.lora_scales.",
            "--lora-init-without-apply/--no-lora-init-without-apply"),
    ]  # fmt: skip
    control_vector: Annotated[
        Files | None,
        opt(None, "Control vectors for the target (GGUF): directions that are added to the outputs of its layers.",
            "--control-vector", metavar="FILE,FILE"),
    ]  # fmt: skip
    control_vector_scaled: Annotated[
        ScaledFiles | None,
        opt(
            None,
            "Control vectors for the target, each with a factor.",
            "--control-vector-scaled",
            metavar="FILE:SCALE,...",
        ),
    ]
    control_vector_layer_range: Annotated[
        LayerRange | None,
        opt(None, "First and last layer to which control vectors are added. Default: all.",
            "--control-vector-layer-range", metavar="START END"),
    ]  # fmt: skip
    numa: Annotated[
        Numa | None,
        opt(None, "How memory and threads are spread over NUMA nodes, for the whole process.", "--numa", env="NUMA"),
    ]
