"""The options of `Duo`: where the models run, and how they are loaded."""

from typing import Annotated

from typing_extensions import TypedDict

from duo.options.cache import CacheOptions
from duo.options.cheap_draft import CheapDraftOptions
from duo.options.client import ClientOptions
from duo.options.context import ContextOptions, OffloadOptions
from duo.options.experts import ExpertOptions
from duo.options.lookup import LookupOptions
from duo.options.option import CpuKernels, LoadMode, OnOffAuto, opt
from duo.options.pictures import PictureOptions
from duo.options.place import PlaceOptions
from duo.options.spelling import SpellingOptions
from duo.options.threads import ThreadOptions
from duo.options.weights import WeightOptions


class KernelOptions(TypedDict, total=False):
    """How weights are read, and what multiplies them."""

    load_mode: Annotated[LoadMode, opt("auto", "How to read the weights.", "-lm", "--load-mode", env="LOAD_MODE")]
    lazy_mode: Annotated[
        OnOffAuto,
        opt(
            "auto",
            "Read the rows of embeddings of layers (as in Gemma 4) from the disk when they are needed, instead of "
            "keeping them in RAM. auto: if they have more than 4 GiB.",
            "-lzm",
            "--lazy-mode",
            env="LAZY_MODE",
        ),
    ]
    cpu_kernels: Annotated[
        CpuKernels,
        opt(
            "auto",
            "Kernels that multiply weights on the CPU: duo's or llama.cpp's stock ones. auto: duo's, unless stock "
            "kernels are at least 5% faster for a weight type; duo measures this once on each machine (see duo "
            "doctor).",
            "--cpu-kernels",
        ),
    ]
    strict: Annotated[
        bool,
        opt(
            False,
            "Compute the same bits at every batch width with stock kernels too, so that the text equals plain "
            "decoding even where two tokens nearly tie. duo's CPU kernels always do this, and at a lower cost.",
            "--strict/--no-strict",
        ),
    ]


class EngineOptions(
    PlaceOptions,
    CacheOptions,
    LookupOptions,
    ThreadOptions,
    KernelOptions,
    ExpertOptions,
    PictureOptions,
    CheapDraftOptions,
    ClientOptions,
    OffloadOptions,
    WeightOptions,
    SpellingOptions,
    ContextOptions,
    total=False,
):
    """Keywords of `Duo` for the models. Fixed from load to close."""
