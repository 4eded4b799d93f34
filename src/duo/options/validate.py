"""Checks keywords and their values, and fills in the defaults."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Any

from duo.errors import BadValueError
from duo.options import tables
from duo.options.check import WrongValueError, check_value
from duo.options.engine import EngineOptions
from duo.options.generate import GenerateOptions
from duo.options.host import HostOptions, of_one_model
from duo.options.option import N_DRAFT_MAX, N_STEP_MAX, Opt
from duo.options.samplers import switched_off
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.options.endpoint import EndpointOptions
    from duo.options.serve import ServeOptions
    from duo.options.train import DraftOptions, HeadOptions

# Where the options of each table are explained.
_HELP = {
    "ENGINE_OPTIONS": "run --help-all",
    "GENERATE_OPTIONS": "run --help-all",
    "HOST_OPTIONS": "draft-host --help",
    "SERVE_OPTIONS": "serve --help-all",
    "ENDPOINT_OPTIONS": "bench --help-all",
    "TRAIN_HEAD_OPTIONS": "train-head --help",
    "TRAIN_DRAFT_OPTIONS": "train-draft --help",
}


def _sentence(name: str, e: WrongValueError) -> str:
    by_table: Iterator[tuple[dict[str, Opt], str]] = ((getattr(tables, t), command) for t, command in _HELP.items())
    o, command = next((t[name], command) for t, command in by_table if name in t)
    where = f"{name} ({o.flags[0].split('/')[0]})" if o.flags else name
    why = e.why[0].lower() + e.why[1:]
    return f"{where} is {quoted(e.value)}, but {why}; see duo {command}"


def _complete(function: str, options: dict[str, Any], kind: type, table: dict[str, Opt]) -> Any:
    """For these keywords of a function, the defaults filled in. kind: the TypedDict of the table. Raises TypeError or
    BadValueError."""
    check_keywords(function, options, table)
    values = {name: o.default for name, o in table.items()}
    for name in (n for n in table if n in options):  # in this order, which says what is reported if several are wrong
        try:
            values[name] = check_value(kind, name, options[name])
        except WrongValueError as e:
            raise BadValueError(_sentence(name, e)) from None
    return values


def check_keywords(function: str, options: dict[str, Any], *tables: Container[str]) -> None:
    """Raises TypeError for a keyword that no table has, as Python itself does."""
    for name in options:
        if not any(name in t for t in tables):
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def engine_options(options: dict[str, Any]) -> EngineOptions:
    """`options` checked, defaults filled in. Raises TypeError (unknown keyword) or BadValueError."""
    checked: EngineOptions = _complete("Duo", options, EngineOptions, ENGINE_OPTIONS)
    for name in ("type_v", "type_v_draft"):
        if checked["flash_attn"] == "off" and checked[name] not in ("f32", "f16", "bf16"):
            flag = ENGINE_OPTIONS[name].flags[0]
            raise BadValueError(f"{name} ({flag}) is a quantised type, which needs flash attention; leave out -fa off")
    if checked["draft_host"] is not None and checked["verify_host"] is not None:
        raise BadValueError("draft_host (--draft-host) and verify_host (--verify-host) were both given; choose one")
    if checked["draft_host"] is None and checked["verify_host"] is None:
        for name in ("host_ca", "host_cert", "host_key", "token_file"):
            if checked[name] is not None:  # type: ignore[literal-required]
                flag = ENGINE_OPTIONS[name].flags[0]
                raise BadValueError(f"{name} ({flag}) needs a host; give --draft-host or --verify-host too")
    for role in ("draft", "verify"):
        if checked[f"{role}_host"] is None:  # type: ignore[literal-required]
            continue
        elsewhere = of_one_model(role, ENGINE_OPTIONS) - {"n_ctx"}  # -c also limits the text on this machine
        for name in ENGINE_OPTIONS:
            if name in elsewhere and options.get(name) is not None:
                flag = ENGINE_OPTIONS[name].flags[0]
                raise BadValueError(
                    f"{name} ({flag}) belongs to the model on the other machine; give it to duo {role}-host there"
                )
    return checked


def host_options(options: dict[str, Any]) -> HostOptions:
    """`options` checked, defaults filled in. Raises TypeError (unknown keyword) or BadValueError."""
    checked: HostOptions = _complete("host", options, HostOptions, tables.HOST_OPTIONS)
    return checked


def serve_options(options: dict[str, Any]) -> ServeOptions:
    """`options` checked, defaults filled in. Raises TypeError (unknown keyword) or BadValueError."""
    from duo.options.serve import ServeOptions

    checked: ServeOptions = _complete("serve", options, ServeOptions, tables.SERVE_OPTIONS)
    return checked


def endpoint_options(options: dict[str, Any]) -> EndpointOptions:
    """`options` checked, defaults filled in. Raises TypeError (unknown keyword) or BadValueError."""
    from duo.options.endpoint import EndpointOptions

    checked: EndpointOptions = _complete("bench", options, EndpointOptions, tables.ENDPOINT_OPTIONS)
    return checked


def train_head_options(options: dict[str, Any]) -> HeadOptions:
    """`options` checked, defaults filled in. Raises TypeError (unknown keyword) or BadValueError."""
    from duo.options.train import HeadOptions

    checked: HeadOptions = _complete("train_head", options, HeadOptions, tables.TRAIN_HEAD_OPTIONS)
    return checked


def train_draft_options(options: dict[str, Any]) -> DraftOptions:
    """`options` checked, defaults filled in. Raises TypeError (unknown keyword) or BadValueError."""
    from duo.options.train import DraftOptions

    checked: DraftOptions = _complete("train_draft", options, DraftOptions, tables.TRAIN_DRAFT_OPTIONS)
    return checked


def generate_options(options: dict[str, Any], function: str = "generate") -> GenerateOptions:
    """`options` checked, defaults filled in. Raises TypeError (unknown keyword) or BadValueError."""
    checked: GenerateOptions = _complete(function, options, GenerateOptions, GENERATE_OPTIONS)
    if checked["max_tokens"] == 0:
        raise BadValueError("max_tokens (-n) is 0; give at least 1, or -1 for no limit")
    if checked["samplers"] is not None:
        checked.update(switched_off(checked["samplers"]))  # type: ignore[typeddict-item]
    if checked["n_draft"] == 0:
        checked["mode"], checked["n_draft"] = "plain", "auto"
    n_draft = checked["n_draft"]
    if n_draft != "auto" and not 1 <= n_draft <= N_DRAFT_MAX:
        raise BadValueError(f"n_draft (--draft) is {n_draft}; give 1 to {N_DRAFT_MAX}, auto, or none")
    if n_draft != "auto" and checked["n_draft_min"] > n_draft:
        raise BadValueError(
            f"n_draft_min (--draft-min) is {checked['n_draft_min']}, above n_draft (--draft), {n_draft}"
        )
    n_branches = checked["n_draft_branches"]
    if n_branches != "auto" and not 1 <= n_branches <= N_STEP_MAX:
        raise BadValueError(f"n_draft_branches (--draft-branches) is {n_branches}; give 1 to {N_STEP_MAX}, or auto")
    return checked
