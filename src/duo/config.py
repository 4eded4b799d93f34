"""Every option, once: its Python keyword, its type and bounds, its command-line spellings, environment name and help.

The two TypedDicts are what `Duo(...)` and `generate(...)` take as keywords; pydantic checks values against them, and
duo.cli.options makes the command line of them. llama.cpp's spellings, old and new, are aliases of one option.
"""

from __future__ import annotations

from typing import Annotated, get_args, get_origin, get_type_hints

from pydantic import Field
from typing_extensions import TypedDict

from duo.option import (
    AutoInt,
    Bias,
    Count,
    CpuKernels,
    Int,
    KvType,
    LayerCount,
    LoadMode,
    Mode,
    OnOffAuto,
    Opt,
    Penalty,
    Probability,
    Threads,
    opt,
)


class EngineOptions(TypedDict, total=False):
    """Keywords of `Duo`: where the models live. Fixed from load to close."""

    n_gpu_layers: Annotated[
        LayerCount,
        opt(
            "all", "Layers of the target on its devices.", "-ngl", "--gpu-layers", "--n-gpu-layers", env="N_GPU_LAYERS"
        ),
    ]
    n_gpu_layers_draft: Annotated[
        LayerCount,
        opt(
            "all",
            "Layers of the draft on its devices.",
            "-ngld",
            "--gpu-layers-draft",
            "--n-gpu-layers-draft",
            "--spec-draft-ngl",
            env="N_GPU_LAYERS_DRAFT",
        ),
    ]
    device: Annotated[
        str | list[str] | None,
        opt(
            None,
            "Devices for the target, comma-separated; none: CPU only. Default: every local GPU.",
            "-dev",
            "--device",
            env="DEVICE",
            metavar="DEV,DEV",
        ),
    ]
    device_draft: Annotated[
        str | list[str] | None,
        opt(
            None,
            "Devices for the draft, comma-separated; none: CPU only. Default: every local GPU.",
            "-devd",
            "--device-draft",
            "--spec-draft-device",
            metavar="DEV,DEV",
        ),
    ]
    n_ctx: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 2)] | None,
        opt(
            None,
            "Context of the target in tokens; 0: the model's own. Default: the model's own, at most 4096.",
            "-c",
            "--ctx-size",
            env="CTX_SIZE",
        ),
    ]
    n_ctx_draft: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 2)] | None,
        opt(
            None,
            "Context of the draft in tokens. Default: the target's, or the draft's own if that is smaller.",
            "-cd",
            "--ctx-size-draft",
        ),
    ]
    n_threads: Annotated[
        Threads | None,
        opt(None, "CPU threads of the target. Default: the cores, less the draft's.", "-t", "--threads", env="THREADS"),
    ]
    n_threads_draft: Annotated[
        Threads | None,
        opt(
            None,
            "CPU threads of the draft. Default: 1 on a GPU, else a quarter of the cores.",
            "-td",
            "--threads-draft",
            "--spec-draft-threads",
        ),
    ]
    n_threads_batch: Annotated[
        Threads | None,
        opt(None, "CPU threads of the target for prompts. Default: as -t.", "-tb", "--threads-batch"),
    ]
    n_threads_batch_draft: Annotated[
        Threads | None,
        opt(
            None,
            "CPU threads of the draft for prompts. Default: as -td.",
            "-tbd",
            "--threads-batch-draft",
            "--spec-draft-threads-batch",
        ),
    ]
    cpu_mask: Annotated[str | None, opt(None, "CPUs of the target as a hexadecimal mask.", "-C", "--cpu-mask")]
    cpu_mask_draft: Annotated[
        str | None,
        opt(None, "CPUs of the draft as a hexadecimal mask.", "-Cd", "--cpu-mask-draft", "--spec-draft-cpu-mask"),
    ]
    cpu_range: Annotated[str | None, opt(None, "CPUs of the target as a range.", "-Cr", "--cpu-range", metavar="LO-HI")]
    cpu_range_draft: Annotated[
        str | None,
        opt(
            None,
            "CPUs of the draft as a range.",
            "-Crd",
            "--cpu-range-draft",
            "--spec-draft-cpu-range",
            metavar="LO-HI",
        ),
    ]
    n_batch: Annotated[Count, opt(2048, "Tokens in one evaluation at most.", "-b", "--batch-size", env="BATCH")]
    n_ubatch: Annotated[Count, opt(512, "Tokens on the device at once.", "-ub", "--ubatch-size", env="UBATCH")]
    flash_attn: Annotated[OnOffAuto, opt("auto", "Flash attention.", "-fa", "--flash-attn", env="FLASH_ATTN")]
    type_k: Annotated[KvType, opt("f16", "K cache type of the target.", "-ctk", "--cache-type-k", env="CACHE_TYPE_K")]
    type_v: Annotated[KvType, opt("f16", "V cache type of the target.", "-ctv", "--cache-type-v", env="CACHE_TYPE_V")]
    type_k_draft: Annotated[
        KvType,
        opt(
            "f16",
            "K cache type of the draft.",
            "-ctkd",
            "--cache-type-k-draft",
            "--spec-draft-type-k",
            env="SPEC_DRAFT_CACHE_TYPE_K",
        ),
    ]
    type_v_draft: Annotated[
        KvType,
        opt(
            "f16",
            "V cache type of the draft.",
            "-ctvd",
            "--cache-type-v-draft",
            "--spec-draft-type-v",
            env="SPEC_DRAFT_CACHE_TYPE_V",
        ),
    ]
    load_mode: Annotated[LoadMode, opt("auto", "How weights are read.", "-lm", "--load-mode", env="LOAD_MODE")]
    override_tensor: Annotated[
        str | list[str] | None,
        opt(
            None,
            "Memory for the target's tensors whose names match, as ffn_up=CPU; wins over --cpu-kernels.",
            "-ot",
            "--override-tensor",
            env="OVERRIDE_TENSOR",
            metavar="PATTERN=MEMORY,...",
        ),
    ]
    override_tensor_draft: Annotated[
        str | list[str] | None,
        opt(
            None,
            "The same for the draft.",
            "-otd",
            "--override-tensor-draft",
            "--spec-draft-override-tensor",
            metavar="PATTERN=MEMORY,...",
        ),
    ]
    cpu_kernels: Annotated[
        CpuKernels,
        opt(
            "auto",
            "Who multiplies weights on the CPU: duo's kernels or llama.cpp's stock ones. auto: for each weight type "
            "the faster one, measured once on this machine (see duo doctor).",
            "--cpu-kernels",
        ),
    ]
    strict: Annotated[
        bool,
        opt(
            False,
            "Same bits at every width with stock kernels too: the text is equal to plain decoding's even where two "
            "tokens nearly tie. On the CPU, duo's kernels do so anyway, and faster.",
            "--strict/--no-strict",
        ),
    ]


class GenerateOptions(TypedDict, total=False):
    """Keywords of `generate` and `stream`: one text."""

    max_tokens: Annotated[
        Annotated[Int, Field(ge=-1, le=2**31 - 1)],
        opt(
            -1,
            "Tokens to generate; -1: until the model ends or the context is full.",
            "-n",
            "--predict",
            "--n-predict",
            env="N_PREDICT",
        ),
    ]
    temperature: Annotated[
        Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)],
        opt(0.8, "Temperature; 0: always the most probable token.", "--temp", "--temperature", env="TEMPERATURE"),
    ]
    top_k: Annotated[
        Annotated[Int, Field(ge=-1, le=2**31 - 1)],
        opt(40, "Only the K most probable tokens; 0: all.", "--top-k", env="TOP_K"),
    ]
    top_p: Annotated[
        Probability, opt(0.95, "Only the most probable tokens that sum to P; 1: all.", "--top-p", env="TOP_P")
    ]
    min_p: Annotated[
        Probability, opt(0.05, "Only tokens of at least P times the best one's probability.", "--min-p", env="MIN_P")
    ]
    repeat_penalty: Annotated[
        Annotated[float, Field(ge=1e-3, le=1e3, allow_inf_nan=False)],
        opt(1.0, "Divides the logits of recent tokens; 1: off.", "--repeat-penalty", env="REPEAT_PENALTY"),
    ]
    repeat_last_n: Annotated[
        Annotated[Int, Field(ge=-1, le=2**20)],
        opt(64, "Tokens that the penalties look back; 0: off, -1: all.", "--repeat-last-n"),
    ]
    presence_penalty: Annotated[
        Penalty, opt(0.0, "Lowers tokens that occurred; 0: off.", "--presence-penalty", env="PRESENCE_PENALTY")
    ]
    frequency_penalty: Annotated[
        Penalty,
        opt(0.0, "Lowers tokens by how often they occurred; 0: off.", "--frequency-penalty", env="FREQUENCY_PENALTY"),
    ]
    logit_bias: Annotated[
        dict[int, Bias],
        opt(
            {},
            "Adds BIAS to a token's logit, as 15043+1 or 15043-inf; may be repeated.",
            "-l",
            "--logit-bias",
            metavar="TOKEN(+/-)BIAS",
        ),
    ]
    ignore_eos: Annotated[bool, opt(False, "Never end before -n tokens.", "--ignore-eos/--no-ignore-eos")]
    seed: Annotated[
        Annotated[Int, Field(ge=-1, le=2**64 - 1)], opt(-1, "Seed; -1: a new one each time.", "-s", "--seed")
    ]
    stop: Annotated[
        str | list[str],
        opt([], "Stop before this string; may be repeated.", "-r", "--stop", "--reverse-prompt", metavar="TEXT"),
    ]
    mode: Annotated[
        Mode,
        opt("async", "async: both models at once; sync: they take turns; plain: no draft.", "--mode"),
    ]
    n_draft: Annotated[
        AutoInt,
        opt(
            "auto",
            "Drafted tokens verified at once, at most (sync: exactly); auto: as many as pay, none if none do.",
            "--draft",
            "--draft-n",
            "--draft-max",
            "--spec-draft-n-max",
            env="SPEC_DRAFT_N_MAX DRAFT_MAX",
        ),
    ]
    n_draft_min: Annotated[
        Annotated[Int, Field(ge=0, le=64)],
        opt(
            0,
            "Fewer drafted tokens than this are not verified.",
            "--draft-min",
            "--draft-n-min",
            "--spec-draft-n-min",
            env="SPEC_DRAFT_N_MIN DRAFT_MIN",
        ),
    ]
    draft_p_min: Annotated[
        Probability,
        opt(
            0.0,
            "The draft stops where its own probability falls below this.",
            "--draft-p-min",
            "--spec-draft-p-min",
            env="SPEC_DRAFT_P_MIN",
        ),
    ]
    logprobs: Annotated[
        Annotated[Int, Field(ge=0, le=100)] | None,
        opt(None, "Log-probabilities of the target: of each token and its N best alternatives."),
    ]


def options_of(table: type) -> dict[str, Opt]:
    """Keyword -> Opt, in order of definition."""
    found = {}
    for name, hint in get_type_hints(table, include_extras=True).items():
        if get_origin(hint) is Annotated:
            found[name] = next(m for m in get_args(hint)[1:] if isinstance(m, Opt))
    return found


ENGINE_OPTIONS = options_of(EngineOptions)
GENERATE_OPTIONS = options_of(GenerateOptions)
