"""The options of `Duo`: where the models run, and how they are loaded."""

from typing import Annotated

from typing_extensions import TypedDict

from duo.options.cheap_draft import CheapDraftOptions
from duo.options.client import ClientOptions
from duo.options.context import ContextOptions, OffloadOptions
from duo.options.experts import ExpertOptions
from duo.options.markers import Field
from duo.options.option import (
    Count,
    CpuKernels,
    Endpoints,
    Int,
    KvType,
    LayerCount,
    LoadMode,
    OnOffAuto,
    Shares,
    SplitMode,
    TextCount,
    Threads,
    opt,
)
from duo.options.spelling import SpellingOptions
from duo.options.weights import WeightOptions
from duo.support.context import N_CTX_DEFAULT


class PlaceOptions(TypedDict, total=False):
    """Where the models are."""

    n_gpu_layers: Annotated[
        LayerCount,
        opt(
            "auto",
            "Layers of the target on its devices; auto: as many as fit after the draft is placed.",
            "-ngl",
            "--gpu-layers",
            "--n-gpu-layers",
            env="N_GPU_LAYERS",
        ),
    ]
    n_gpu_layers_draft: Annotated[
        LayerCount,
        opt(
            "auto",
            "Layers of the draft on its devices; auto: as many as fit before the target is placed.",
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
    tensor_split: Annotated[
        Shares | None,
        opt(
            None,
            "Share of the target for each of its devices, such as 3,1. Default: by free memory.",
            "-ts",
            "--tensor-split",
            env="TENSOR_SPLIT",
            metavar="N,N",
        ),
    ]
    split_mode: Annotated[
        SplitMode,
        opt("layer", "How to split the target over several devices.", "-sm", "--split-mode", env="SPLIT_MODE"),
    ]
    main_gpu: Annotated[
        Annotated[Int, Field(ge=0, le=127)],
        opt(
            0,
            "With -sm none: the number of the device that holds the target, from 0.",
            "-mg",
            "--main-gpu",
            env="MAIN_GPU",
        ),
    ]
    rpc: Annotated[
        Endpoints | None,
        opt(
            None,
            "GGML RPC servers (duo rpc-server). Their devices (RPC0, RPC1, ...) run the draft, unless -dev gives them "
            "to the target.",
            "--rpc",
            env="RPC",
            metavar="HOST:PORT,...",
        ),
    ]
    n_ctx: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 2)] | None,
        opt(
            None,
            "Context of the target in tokens; 0: the model's own. Default: the model's own, but at most "
            f"{N_CTX_DEFAULT}.",
            "-c",
            "--ctx-size",
            env="CTX_SIZE",
        ),
    ]
    n_ctx_draft: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 2)] | None,
        opt(
            None,
            "Context of the draft in tokens. Default: the target's, or the draft model's own if that is smaller.",
            "-cd",
            "--ctx-size-draft",
        ),
    ]
    n_threads: Annotated[
        Threads | None,
        opt(
            None,
            "CPU threads of the target. Default: all cores; while a draft works, the cores that it leaves free (if the "
            "draft is on a GPU, all but one); 1 for a model below 64 MB.",
            "-t",
            "--threads",
            env="THREADS",
        ),
    ]
    n_threads_draft: Annotated[
        Threads | None,
        opt(
            None,
            "CPU threads of the draft. Default: 1 on a GPU and for a model below 64 MB; otherwise its share of the "
            "cores while the target works, and all cores when the two take turns.",
            "-td",
            "--threads-draft",
            "--spec-draft-threads",
        ),
    ]
    n_threads_batch: Annotated[
        Threads | None,
        opt(None, "CPU threads of the target for prompts. Default: the same as -t.", "-tb", "--threads-batch"),
    ]
    n_threads_batch_draft: Annotated[
        Threads | None,
        opt(
            None,
            "CPU threads of the draft for prompts. Default: the same as -td.",
            "-tbd",
            "--threads-batch-draft",
            "--spec-draft-threads-batch",
        ),
    ]
    cpu_mask: Annotated[str | None, opt(None, "CPUs of the target, as a hexadecimal mask.", "-C", "--cpu-mask")]
    cpu_mask_draft: Annotated[
        str | None,
        opt(None, "CPUs of the draft, as a hexadecimal mask.", "-Cd", "--cpu-mask-draft", "--spec-draft-cpu-mask"),
    ]
    cpu_range: Annotated[
        str | None, opt(None, "CPUs of the target, as a range.", "-Cr", "--cpu-range", metavar="LO-HI")
    ]
    cpu_range_draft: Annotated[
        str | None,
        opt(
            None,
            "CPUs of the draft, as a range.",
            "-Crd",
            "--cpu-range-draft",
            "--spec-draft-cpu-range",
            metavar="LO-HI",
        ),
    ]
    n_parallel: Annotated[
        TextCount,
        opt(
            1,
            "Texts written at once. A number: they share a pool of -c tokens in all (draft: -cd), as with "
            "llama-server's unified cache. auto: -c tokens for each, and as many texts as memory allows, at most 4.",
            "-np",
            "--parallel",
            env="N_PARALLEL",
        ),
    ]
    cache_ram: Annotated[
        Annotated[Int, Field(ge=-1, le=2**31 - 1)],
        opt(
            0,
            "MiB of RAM for prompts that had to leave the target's cache; they come back when a text begins like them. "
            "0: none; -1: no limit.",
            "-cram",
            "--cache-ram",
            env="CACHE_RAM",
            metavar="MIB",
        ),
    ]
    n_batch: Annotated[Count, opt(2048, "Most tokens in one evaluation.", "-b", "--batch-size", env="BATCH")]
    n_ubatch: Annotated[
        Count, opt(512, "Most tokens that a device computes at once.", "-ub", "--ubatch-size", env="UBATCH")
    ]
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
    load_mode: Annotated[LoadMode, opt("auto", "How to read the weights.", "-lm", "--load-mode", env="LOAD_MODE")]
    override_tensor: Annotated[
        str | list[str] | None,
        opt(
            None,
            "Memory for those of the target's tensors whose names match, such as ffn_up=CPU. CPU is the device with "
            "the kernels of --cpu-kernels.",
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
            "Which kernels multiply weights on the CPU: duo's or llama.cpp's stock ones. auto: duo's, except for "
            "weight types for which stock ones are faster by 5%, measured once on this machine (see duo doctor).",
            "--cpu-kernels",
        ),
    ]
    strict: Annotated[
        bool,
        opt(
            False,
            "Compute the same bits at every batch width with stock kernels too, so that the text equals plain decoding "
            "even where two tokens nearly tie. duo's CPU kernels always do this, and faster.",
            "--strict/--no-strict",
        ),
    ]


class EngineOptions(
    PlaceOptions,
    ExpertOptions,
    CheapDraftOptions,
    ClientOptions,
    OffloadOptions,
    WeightOptions,
    SpellingOptions,
    ContextOptions,
    total=False,
):
    """Keywords of `Duo` for the models. Fixed from load to close."""
