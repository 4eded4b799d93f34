"""The command line, built from the tables in duo.options. Values go to Python unchanged: one place checks them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import click
from click.core import ParameterSource

from duo import __version__
from duo._openmp import wait_policy
from duo.cli.complete import by_metavar
from duo.cli.help_groups import help_all, write_options
from duo.cli.llama_cpp_line import Meant, meaning_of, of_environment, without_effect
from duo.cli.llama_cpp_values import in_range
from duo.cli.on_off import Flag
from duo.cli.repeated import CommaSeparated, Repeatable
from duo.cli.unknown_option import unknown_option
from duo.errors import BadValueError
from duo.options.engine import EngineOptions
from duo.options.generate import GenerateOptions
from duo.options.option import Opt
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS
from duo.options.threads import NICE
from duo.support.text_file import text_of

FROM_FILE = {"grammar": ("--grammar-file",), "json_schema": ("-jf", "--json-schema-file")}
REPEATABLE = (
    "stop",
    "images",
    "logit_bias",
    "dry_sequence_breakers",
    "override_tensor",
    "override_tensor_draft",
    "url",
    "api_key_file",
)
# The same, and one value may hold several.
COMMA_SEPARATED = (
    "lora",
    "lora_scaled",
    "control_vector",
    "control_vector_scaled",
    "kv_overrides",
    "rpc",
    "spec_type",
    "alias",
    "tags",
    "api_key",
)
OWN_THREADS = frozenset(f"n_threads{batch}{draft}" for batch in ("", "_batch") for draft in ("", "_draft"))
OF_TWO = ("control_vector_layer_range",)
# Old scripts give these without a value; llama.cpp then takes "on".
VALUE_OPTIONAL = ("flash_attn",)


def metavar_of(hint: Any) -> str:
    """The placeholder for a type: N, F, on|off|auto, N|auto, TEXT."""
    if get_origin(hint) is Annotated:
        return metavar_of(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return "|".join(get_args(hint))
    members = [a for a in get_args(hint) if a is not NoneType]
    if get_origin(hint) is not None and members and get_origin(hint) not in (list, dict):
        return "|".join(dict.fromkeys(metavar_of(a) for a in members))
    return {int: "N", float: "F"}.get(hint, "TEXT")


def _option(name: str, hint: Any, o: Opt) -> click.Option:
    default = o.default
    shown = "on" if default is True else "off" if default is False else default
    shown = ",".join(map(str, shown)) if isinstance(shown, list) else shown
    is_list = name in REPEATABLE and get_args(hint)[0] != str | None  # a client's key is in one file, a server's in any
    several = Repeatable if is_list else CommaSeparated if name in COMMA_SEPARATED else None
    text = o.help if several is None else f"{o.help} May be repeated."
    text = text if shown in (None, "", {}) or "efault" in o.help else f"{text} [default: {shown}]"
    base: dict[str, Any] = {"help": text, "default": None, "envvar": list(o.env) or None}
    if "/" in o.flags[-1]:
        return Flag([name, *o.flags], **base)
    if name in VALUE_OPTIONAL:
        base |= {"is_flag": False, "flag_value": "on"}
    if name in OF_TWO:
        return click.Option([name, *o.flags], type=str, nargs=2, metavar=o.metavar, **base)
    base |= {"metavar": o.metavar or metavar_of(hint), "shell_complete": by_metavar}
    return (several or click.Option)([name, *o.flags], type=str, **base)


def table_options(table: type, opts: dict[str, Opt]) -> Iterator[click.Option]:
    """The options of a table that have a flag."""
    for name, o in opts.items():
        if o.flags:
            yield _option(name, table.__annotations__[name], o)
        if name == "load_mode":
            yield click.Option(["mmap", "--mmap/--no-mmap"], default=None, help="Map the file, or read it: -lm none.")
            yield click.Option(["mlock", "--mlock"], is_flag=True, help="Keep the weights in RAM: -lm mlock.")
        if name == "mmproj":
            yield Flag(["mmproj_auto", "--mmproj-auto/--no-mmproj"], default=None, envvar="LLAMA_ARG_MMPROJ_AUTO",
                       help="Take the projector that -hf's repository has, or not. A file or URL of --mmproj counts "
                            "anyway, as in llama.cpp.")  # fmt: skip
        if name in FROM_FILE:
            yield click.Option(
                [f"{name}_file", *FROM_FILE[name]],
                metavar="FILE",
                shell_complete=by_metavar,
                help=f"A file with the {name.removeprefix('json_')}.",
            )


def _set_priority(ctx: click.Context, _option: click.Parameter, value: int | None) -> int | None:
    if value and hasattr(os, "setpriority") and not ctx.resilient_parsing:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, NICE[value])
        except OSError as e:
            click.echo(
                f"duo: --prio {value} is not possible here ({e.strerror}); the priority stays as it is", err=True
            )
    return value


def _set_poll(_ctx: click.Context, _option: click.Parameter, value: int | None) -> int | None:
    wait_policy.poll = value
    return value


def _log_options() -> Iterator[click.Option]:
    for name, text in (
        ("prefix", "its level, such as I or W"),
        ("timestamps", "the time since the start"),
    ):
        yield Flag([f"log_{name}", f"--log-{name}/--no-log-{name}"], default=None,
                   envvar=f"LLAMA_ARG_LOG_{name.upper()}",
                   help=f"Each line of llama.cpp's log (-v, --log-file) begins with {text}.")  # fmt: skip
    yield Flag(["log_jsonl", "--log-jsonl/--no-log-jsonl"], default=None, envvar="LLAMA_ARG_LOG_JSONL",
               help="Each line of llama.cpp's log is a JSON object with its time, level and text.")  # fmt: skip


def model_options(without: Collection[str] = (), defaults: Mapping[str, Any] | None = None) -> Iterator[click.Option]:
    """All options of a run, except those that are left out. defaults: a command's own ones, which help then has."""
    own = defaults or {}
    yield from (with_default(o, own) for o in table_options(EngineOptions, ENGINE_OPTIONS) if o.name not in without)
    if "prio" not in without:
        yield click.Option(["prio", "--prio"], type=click.IntRange(-1, 3), metavar="N",
                           callback=_set_priority,
                           help="Priority of the process: -1 low, 0 normal, 1 medium, 2 high, 3 realtime.")  # fmt: skip
        yield click.Option(["poll", "--poll"], type=click.IntRange(0, 100), metavar="N",
                           callback=_set_poll,
                           help="How long idle threads of the CPU wait awake for work: 0 (they sleep at once, which "
                                "saves power) to 100. Default: 50, unless OMP_WAIT_POLICY or GOMP_SPINCOUNT is "
                                "set.")  # fmt: skip
    if "log_prefix" not in without:
        yield from _log_options()
    for o in table_options(GenerateOptions, GENERATE_OPTIONS):
        if o.name not in without:
            yield with_default(o, own)


def with_default(o: click.Option, defaults: Mapping[str, Any]) -> click.Option:
    """The option, whose help has the command's own default if it has one."""
    if o.name in defaults:
        of_table = re.sub(r" \[default: [^\]]*\]$", "", o.help or "")
        o.help = f"{of_table} [default: {defaults[o.name]}]"
    return o


def logit_bias(values: tuple[str, ...]) -> dict[int, float]:
    """ "15043+1", "15043-inf" -> {15043: bias}. Raises BadValueError."""
    biases = {}
    for value in values:
        match = re.fullmatch(r"(\d+)([+-].+)", value)
        try:
            if match is None:
                raise ValueError
            biases[int(match[1])] = float(match[2])
        except ValueError:
            raise BadValueError(f"-l {value!r} is not TOKEN(+/-)BIAS; write it as 15043+1 or 15043-inf") from None
    return biases


def sequence_breakers(values: tuple[str, ...], *, escape: bool) -> list[str]:
    """As llama.cpp reads them: none removes those before it. Raises BadValueError."""
    behind = max((i + 1 for i, v in enumerate(values) if v == "none"), default=0)
    return [unescape(v) if escape else v for v in values[behind:]]


def given_options(params: dict[str, Any], table: dict[str, Opt]) -> dict[str, Any]:
    """The keywords of `table` that the user gave."""
    out = {name: in_range(name, params[name]) for name in table if params.get(name) not in (None, ())}
    for name in OWN_THREADS & out.keys():
        if re.fullmatch(r"-\d{1,9}|0", str(out[name]).strip()):
            del out[name]  # llama.cpp takes as many as there are then; duo chooses
    if "load_mode" in table and "load_mode" not in out:
        if params.get("mlock"):
            out["load_mode"] = "mlock"
        elif params.get("mmap") is not None:
            out["load_mode"] = "mmap" if params["mmap"] else "none"
    if "stop" in out and params["escape"]:
        out["stop"] = [unescape(s) for s in out["stop"]]
    if "dry_sequence_breakers" in out:
        out["dry_sequence_breakers"] = sequence_breakers(
            out["dry_sequence_breakers"], escape=params.get("escape", True)
        )
    if "logit_bias" in out:
        out["logit_bias"] = logit_bias(out["logit_bias"])
    for name in FROM_FILE.keys() & table.keys():
        if params.get(f"{name}_file") is not None:
            if name in out:
                both = " and ".join((table[name].flags[-1], FROM_FILE[name][-1]))
                raise BadValueError(f"both {both} were given; choose one")
            out[name] = text_of(Path(params[f"{name}_file"]), f"file of {FROM_FILE[name][-1]}")
    return out


_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"'": b"'", b'"': b'"', b"\\": b"\\"}


def unescape(text: str) -> str:
    r"""Replaces \n, \t, \r, \", \', \\ and \xHH (a byte), as llama.cpp does in -p and -r. Raises BadValueError."""

    def meant(match: re.Match[bytes]) -> bytes:
        return _ESCAPES.get(match[1]) or bytes([int(match[1][1:], 16)])

    # Python represents the bytes of an argument that is not UTF-8 by surrogateescape.
    raw = text.encode("utf-8", "surrogateescape")
    try:
        return re.sub(rb"""\\(x[0-9a-fA-F]{2}|[ntr'"\\])""", meant, raw).decode()
    except UnicodeDecodeError as e:
        raise BadValueError(
            f"{text!r} is not UTF-8 (byte {e.start} once escapes are replaced); change the escapes"
        ) from None


HELP_NAMES = ["-h", "--help"]


class ModelCommand(click.Command):
    """A command that reports unknown options itself, because click would read -mdfoo as -m dfoo."""

    def __init__(self, *args: Any, common: Collection[str] = (), **attributes: Any) -> None:
        """common: names of the options that --help shows, while --help-all shows all. Empty: --help does."""
        # Given by the parent otherwise; but click keeps the names of a command's first context.
        attributes.setdefault("context_settings", {"help_option_names": HELP_NAMES})
        super().__init__(*args, **attributes)
        self.common = common
        if common:
            self.params.append(help_all())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.common:
            write_options(ctx, formatter, self.get_params(ctx), self.common)
        else:
            super().format_options(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["--version"]:  # as llama.cpp's programs, which have no commands
            click.echo(f"duo {__version__}", color=ctx.color)
            ctx.exit()
        if args[:1] == ["--usage"]:
            args = ["--help", *args[1:]]
        own_options: dict[str, click.Option | None] = {
            s: p for p in self.params if isinstance(p, click.Option) for s in (*p.opts, *p.secondary_opts)
        }
        own_options |= dict.fromkeys(ctx.help_option_names)

        def n_values(arg: str) -> int:
            """Arguments after this one that are its value, even if they look like options. Raises ClickException."""
            if not arg.startswith("-") or arg == "-" or re.fullmatch(r"-[\d.]+", arg):
                return 0
            name = arg.split("=", 1)[0] if arg.startswith("--") else arg
            if name not in own_options:
                raise click.ClickException(unknown_option(name, own_options, command))
            param = own_options[name]
            alone = param is None or param.is_flag or "=" in arg or param.name in (*VALUE_OPTIONAL, "color")
            return 0 if param is None or alone else param.nargs

        command = ctx.info_name or ""
        try:
            meant = meaning_of([*of_environment(args, command, own_options), *args], command, own_options, n_values)
        except ValueError as e:
            if not ctx.resilient_parsing:
                raise click.ClickException(str(e)) from None
            meant = Meant(args, {}, {}, {})
        ctx.default_map = {**(ctx.default_map or {}), **meant.defaults}
        for name, option in ({} if ctx.resilient_parsing else without_effect()).items():
            click.echo(f"duo: the variable {name} has no effect, because duo has no {option}", err=True)
        rest = super().parse_args(ctx, meant.args)
        for host, name in (("draft_host", "n_gpu_layers_draft"), ("verify_host", "n_gpu_layers")):
            if ctx.params.get(host) is not None and ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
                ctx.params[name] = None  # that model is on another machine
        notes = meant.warnings | (meant.notes if ctx.params.get("verbose") else {})
        for name, why in ({} if ctx.resilient_parsing else notes).items():
            click.echo(f"duo: llama.cpp's {name}: {why}", err=True)
        return rest
