"""llama.cpp's choice of samplers: which ones are applied, and in which order. One that is left out is off."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from duo.options.markers import BeforeValidator
from duo.support.wording import quoted


class Sampler(NamedTuple):
    """As in llama.cpp's common/sampling.cpp."""

    name: str
    letter: str
    off: dict[str, float]  # keywords of a text that switch it off


ORDER = (
    Sampler("penalties", "e", {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}),
    Sampler("dry", "d", {"dry_multiplier": 0.0}),
    Sampler("top_n_sigma", "s", {"top_n_sigma": -1.0}),
    Sampler("top_k", "k", {"top_k": 0}),
    Sampler("typ_p", "y", {"typical_p": 1.0}),
    Sampler("top_p", "p", {"top_p": 1.0}),
    Sampler("min_p", "m", {"min_p": 0.0}),
    Sampler("xtc", "x", {"xtc_probability": 0.0}),
    Sampler("temperature", "t", {"temperature": 1.0, "dynatemp_range": 0.0}),
)
ALL = [s.name for s in ORDER]
_BY_NAME = {name.replace("_", x): name for name in ALL for x in ("_", "-", "")}
ADAPTIVE = "adaptive_p"  # comes after all others, wherever it is named
# Applied only if they are named: infill favours the end of a text that is filled in.
MORE = ("infill", ADAPTIVE)
_BY_NAME |= {"nucleus": "top_p", "typ": "typ_p", "temp": "temperature", "infill": "infill"}
_BY_NAME |= dict.fromkeys((ADAPTIVE, "adaptive-p"), ADAPTIVE)
N_MOST = 32
_BY_LETTER = {s.letter: s.name for s in ORDER} | {"i": "infill", "a": ADAPTIVE}


def _samplers(value: Any) -> Any:
    """Accepts a list of names, names with semicolons between, or llama.cpp's letters."""
    names = value
    if isinstance(value, str) and value:
        by_name = ";" in value or value.lower() in _BY_NAME
        names = [_BY_LETTER.get(x, x) for x in ([n for n in value.split(";") if n] if by_name else value)]
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"input should be names of samplers: {';'.join([*ALL, *MORE])}")
    for n in names:
        if n.lower() not in _BY_NAME:
            raise ValueError(f"duo has no sampler {quoted(n)}; choose from {', '.join([*ALL, *MORE])}")
    if len(names) > N_MOST:
        raise ValueError(f"there can be {N_MOST} samplers at most")
    names = [_BY_NAME[n.lower()] for n in names]
    if names.count("dry") > 1:
        raise ValueError("dry can be there once")  # each reads the whole vocabulary
    return names


Samplers = Annotated[list[str], BeforeValidator(_samplers)]


def is_usual(names: Sequence[str] | None) -> bool:
    """Whether the samplers are in llama.cpp's own order, each once. None: all samplers."""
    return names is None or filters(names) == [n for n in ALL if n in names]


def filters(names: Sequence[str] | None) -> list[str]:
    """The samplers that are applied one after the other. None: all of them."""
    return ALL if names is None else [n for n in names if n != ADAPTIVE]


def switched_off(names: Sequence[str]) -> dict[str, float]:
    """The keywords of a text that switch all other samplers off."""
    return {k: v for s in ORDER if s.name not in names for k, v in s.off.items()}
