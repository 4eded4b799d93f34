"""One option: how it looks outside Python, and the types that options share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

Mode = Literal["plain", "sync", "async"]
OnOffAuto = Literal["on", "off", "auto"]
CpuKernels = Literal["auto", "duo", "stock"]
LoadMode = Literal["auto", "none", "mmap", "mlock", "dio"]
KvType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]


def _whole(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"[+-]?[0-9]+", value.strip()):
        raise ValueError("input should be a whole number")  # pydantic reads '0-7' as -7
    return value


Int = Annotated[int, BeforeValidator(_whole)]
AutoInt = Int | Literal["auto"]
LayerCount = Annotated[Int, Field(ge=-1, le=2**31 - 1)] | Literal["all"]

Count = Annotated[Int, Field(ge=1, le=2**31 - 1)]
Threads = Annotated[Int, Field(ge=1, le=512)]  # ggml asserts on more
Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=-1e4, le=1e4, allow_inf_nan=False)]


def _finite_bias(value: float) -> float:
    # -inf excludes a token; +inf and NaN would make the other logits meaningless.
    if not (abs(value) <= 1e9 or value == float("-inf")):
        raise ValueError("input should be -inf or a number between -1e9 and 1e9")
    return value


Bias = Annotated[float, AfterValidator(_finite_bias)]


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
