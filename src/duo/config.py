"""Every option, once: its Python keyword, its type and bounds, its command-line spellings, environment name and help.

The two TypedDicts are what `Duo(...)` and `generate(...)` take as keywords; pydantic checks values against them, and
duo.cli.options makes the command line of them. llama.cpp's spellings, old and new, are aliases of one option.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from duo.errors import DuoError

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

Mode = Literal["plain", "sync", "async"]
OnOffAuto = Literal["on", "off", "auto"]
LoadMode = Literal["auto", "none", "mmap", "mlock", "dio"]
KvType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
AutoInt = int | Literal["auto"]
LayerCount = int | Literal["all"]

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True)
class Opt:
    """How one option looks outside Python. `flags` empty: Python only."""

    default: Any
    help: str
    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    metavar: str | None = None


def opt(default: Any, help: str, *flags: str, env: str = "", metavar: str | None = None) -> Opt:
    """`env`: names without LLAMA_ARG_, separated by spaces; the first one that is set wins."""
    return Opt(default, help, flags, tuple(f"LLAMA_ARG_{name}" for name in env.split()), metavar)


class EngineOptions(TypedDict, total=False):
    """Keywords of `Duo`: where the models live. Fixed from load to close."""

    n_gpu_layers: Annotated[
        LayerCount,
        opt("all", "Layers of the target on its devices.", "-ngl", "--gpu-layers", "--n-gpu-layers", env="N_GPU_LAYERS"),
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
        Annotated[int, Field(ge=0, le=2**31 - 2)] | None,
        opt(
            None,
            "Context of the target in tokens; 0: the model's own. Default: the model's own, at most 4096.",
            "-c",
            "--ctx-size",
            env="CTX_SIZE",
        ),
    ]
    n_ctx_draft: Annotated[
        Annotated[int, Field(ge=0, le=2**31 - 2)] | None,
        opt(
            None,
            "Context of the draft in tokens. Default: the target's, or the draft's own if that is smaller.",
            "-cd",
            "--ctx-size-draft",
        ),
    ]
    n_threads: Annotated[
        Count | None,
        opt(None, "CPU threads of the target. Default: the cores, less the draft's.", "-t", "--threads", env="THREADS"),
    ]
    n_threads_draft: Annotated[
        Count | None,
        opt(
            None,
            "CPU threads of the draft. Default: 1 on a GPU, else a quarter of the cores.",
            "-td",
            "--threads-draft",
            "--spec-draft-threads",
        ),
    ]
    n_threads_batch: Annotated[
        Count | None,
        opt(None, "CPU threads of the target for prompts. Default: as -t.", "-tb", "--threads-batch"),
    ]
    n_threads_batch_draft: Annotated[
        Count | None,
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
    cpu_range: Annotated[
        str | None, opt(None, "CPUs of the target as a range.", "-Cr", "--cpu-range", metavar="LO-HI")
    ]
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
    n_batch: Annotated[
        Count, opt(2048, "Tokens in one evaluation at most.", "-b", "--batch-size", env="BATCH")
    ]
    n_ubatch: Annotated[
        Count, opt(512, "Tokens on the device at once.", "-ub", "--ubatch-size", env="UBATCH")
    ]
    flash_attn: Annotated[OnOffAuto, opt("auto", "Flash attention.", "-fa", "--flash-attn", env="FLASH_ATTN")]
    type_k: Annotated[
        KvType, opt("f16", "K cache type of the target.", "-ctk", "--cache-type-k", env="CACHE_TYPE_K")
    ]
    type_v: Annotated[
        KvType, opt("f16", "V cache type of the target.", "-ctv", "--cache-type-v", env="CACHE_TYPE_V")
    ]
    type_k_draft: Annotated[
        KvType,
        opt("f16", "K cache type of the draft.", "-ctkd", "--cache-type-k-draft", "--spec-draft-type-k",
            env="SPEC_DRAFT_CACHE_TYPE_K"),
    ]
    type_v_draft: Annotated[
        KvType,
        opt("f16", "V cache type of the draft.", "-ctvd", "--cache-type-v-draft", "--spec-draft-type-v",
            env="SPEC_DRAFT_CACHE_TYPE_V"),
    ]
    load_mode: Annotated[
        LoadMode, opt("auto", "How weights are read.", "-lm", "--load-mode", env="LOAD_MODE")
    ]
    strict: Annotated[
        bool,
        opt(
            False,
            "Same bits at every width: the text is equal to plain decoding's even where two tokens nearly tie. "
            "Slower with stock CPU kernels; plain decoding then needs --strict too to be compared.",
            "--strict/--no-strict",
        ),
    ]


class GenerateOptions(TypedDict, total=False):
    """Keywords of `generate` and `stream`: one text."""

    max_tokens: Annotated[
        Annotated[int, Field(ge=-1, le=2**31 - 1)],
        opt(-1, "Tokens to generate; -1: until the model ends or the context is full.", "-n", "--predict",
            "--n-predict", env="N_PREDICT"),
    ]
    temperature: Annotated[
        Annotated[float, Field(ge=0.0, allow_inf_nan=False)],
        opt(0.8, "Temperature; 0: always the most probable token.", "--temp", "--temperature", env="TEMPERATURE"),
    ]
    top_k: Annotated[int, opt(40, "Only the K most probable tokens; 0: all.", "--top-k", env="TOP_K")]
    top_p: Annotated[Probability, opt(0.95, "Only the most probable tokens that sum to P; 1: all.", "--top-p", env="TOP_P")]
    min_p: Annotated[Probability, opt(0.05, "Only tokens of at least P times the best one's probability.", "--min-p", env="MIN_P")]
    repeat_penalty: Annotated[
        Annotated[float, Field(gt=0.0, allow_inf_nan=False)],
        opt(1.0, "Divides the logits of recent tokens; 1: off.", "--repeat-penalty", env="REPEAT_PENALTY"),
    ]
    repeat_last_n: Annotated[
        Annotated[int, Field(ge=-1, le=2**20)],
        opt(64, "Tokens that the penalties look back; 0: off, -1: all.", "--repeat-last-n"),
    ]
    presence_penalty: Annotated[Finite, opt(0.0, "Lowers tokens that occurred; 0: off.", "--presence-penalty", env="PRESENCE_PENALTY")]
    frequency_penalty: Annotated[
        Finite, opt(0.0, "Lowers tokens by how often they occurred; 0: off.", "--frequency-penalty", env="FREQUENCY_PENALTY")
    ]
    logit_bias: Annotated[
        dict[int, Annotated[float, Field(allow_inf_nan=True)]],
        opt({}, "Adds BIAS to a token's logit, as 15043+1 or 15043-inf; may be repeated.", "-l", "--logit-bias",
            metavar="TOKEN(+/-)BIAS"),
    ]
    ignore_eos: Annotated[
        bool, opt(False, "Never end before -n tokens.", "--ignore-eos/--no-ignore-eos")
    ]
    seed: Annotated[
        Annotated[int, Field(ge=-1, le=2**64 - 1)], opt(-1, "Seed; -1: a new one each time.", "-s", "--seed")
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
            "Drafted tokens verified at once, at most; auto: as many as pay, none if none do.",
            "--draft",
            "--draft-n",
            "--draft-max",
            "--spec-draft-n-max",
            env="SPEC_DRAFT_N_MAX DRAFT_MAX",
        ),
    ]
    n_draft_min: Annotated[
        Annotated[int, Field(ge=0, le=64)],
        opt(0, "Fewer drafted tokens than this are not verified.", "--draft-min", "--draft-n-min",
            "--spec-draft-n-min", env="SPEC_DRAFT_N_MIN DRAFT_MIN"),
    ]
    draft_p_min: Annotated[
        Probability,
        opt(0.0, "The draft stops where its own probability falls below this.", "--draft-p-min", "--spec-draft-p-min",
            env="SPEC_DRAFT_P_MIN"),
    ]
    logprobs: Annotated[
        Annotated[int, Field(ge=0, le=100)] | None,
        opt(None, "Log-probabilities of the target: of each token and its N best alternatives."),
    ]


# Unknown keywords are TypeErrors (check_keywords), so pydantic need not speak of them.
_ENGINE: TypeAdapter[EngineOptions] = TypeAdapter(with_config(ConfigDict(extra="forbid"))(EngineOptions))
_GENERATE: TypeAdapter[GenerateOptions] = TypeAdapter(with_config(ConfigDict(extra="forbid"))(GenerateOptions))


def options_of(table: type) -> dict[str, Opt]:
    """Keyword -> Opt, in order of definition."""
    found = {}
    for name, hint in get_type_hints(table, include_extras=True).items():
        if get_origin(hint) is Annotated:
            found[name] = next(m for m in get_args(hint)[1:] if isinstance(m, Opt))
    return found


ENGINE_OPTIONS = options_of(EngineOptions)
GENERATE_OPTIONS = options_of(GenerateOptions)


def _sentence(e: ValidationError) -> str:
    first = e.errors()[0]
    name = str(first["loc"][0])
    o = ENGINE_OPTIONS.get(name) or GENERATE_OPTIONS[name]
    where = f"{name} ({o.flags[0].split('/')[0]})" if o.flags else name
    why = first["msg"][0].lower() + first["msg"][1:]
    return f"{where} is {first['input']!r}, but {why}; see duo --help"


def _complete(given: dict[str, Any], table: dict[str, Opt], adapter: TypeAdapter[Any]) -> Any:
    try:
        checked = adapter.validate_python(given)
    except ValidationError as e:
        raise DuoError(_sentence(e)) from None
    return {name: o.default for name, o in table.items()} | checked


def check_keywords(function: str, given: dict[str, Any], *tables: dict[str, Opt]) -> None:
    """TypeError for a keyword that no table has, as Python itself would raise."""
    for name in given:
        if not any(name in t for t in tables):
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def engine_options(given: dict[str, Any]) -> EngineOptions:
    """`given` checked, defaults filled in. Raises TypeError (unknown keyword) or DuoError (bad value)."""
    check_keywords("Duo", given, ENGINE_OPTIONS)
    checked: EngineOptions = _complete(given, ENGINE_OPTIONS, _ENGINE)
    return checked


def generate_options(given: dict[str, Any]) -> GenerateOptions:
    """`given` checked, defaults filled in. Raises TypeError (unknown keyword) or DuoError (bad value)."""
    check_keywords("generate", given, GENERATE_OPTIONS)
    checked: GenerateOptions = _complete(given, GENERATE_OPTIONS, _GENERATE)
    if checked["max_tokens"] == 0:
        raise DuoError("max_tokens (-n) is 0; give at least 1, or -1 for no limit")
    n_draft = checked["n_draft"]
    if n_draft != "auto" and not 1 <= n_draft <= 64:
        raise DuoError(f"n_draft (--draft) is {n_draft}; give 1 to 64, or auto")
    return checked
