"""The options of `Duo` for the context: its length, its texts, and the types of its cache."""

from typing import Annotated

from typing_extensions import TypedDict

from duo.options.markers import Field
from duo.options.option import Count, Int, KvType, OnOffAuto, TextCount, opt
from duo.support.context import N_CTX_DEFAULT


class CacheOptions(TypedDict, total=False):
    """Options of both models."""

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
    n_parallel: Annotated[
        TextCount,
        opt(
            1,
            "Number of slots: texts that are written at once. They share a pool of -c tokens (draft: -cd), as with "
            "llama-server's unified cache. auto: -c tokens for each slot, and as many slots as memory allows, at "
            "most 4.",
            "-np",
            "--parallel",
            env="N_PARALLEL",
        ),
    ]
    cache_ram: Annotated[
        Annotated[Int, Field(ge=-1, le=2**31 - 1)],
        opt(
            0,
            "MiB of RAM for texts that the target's cache evicts. They are restored when a prompt has their prefix. "
            "0: none; -1: no limit.",
            "-cram",
            "--cache-ram",
            env="CACHE_RAM",
            metavar="MIB",
        ),
    ]
    ctx_checkpoints: Annotated[
        Annotated[Int, Field(ge=0, le=65536)],
        opt(4, "States that a target with a recurrent state keeps of a slot's prompts, so that a later prompt need not "
               "be read from its beginning. Other models keep none.",
            "-ctxcp", "--ctx-checkpoints", "--swa-checkpoints", env="CTX_CHECKPOINTS"),
    ]  # fmt: skip
    checkpoint_min_step: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 1)],
        opt(0, "Tokens between two of these states, at least.", "-cms", "--checkpoint-min-step",
            env="CHECKPOINT_MIN_SPACING_NT"),
    ]  # fmt: skip
    n_batch: Annotated[
        Count, opt(2048, "Maximum number of tokens in one evaluation.", "-b", "--batch-size", env="BATCH")
    ]
    n_ubatch: Annotated[
        Count,
        opt(512, "Maximum number of tokens that a device computes at once.", "-ub", "--ubatch-size", env="UBATCH"),
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
