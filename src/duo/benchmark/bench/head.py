"""The head of a report, with all that is needed to repeat a run: machine, models, versions, command, settings."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from duo import _core
from duo.placement.cpus import usable_cores
from duo.placement.kernels import processor

# Settings shown on the screen; files have all.
SHOWN = ("questions", "repetitions", "warm_up", "max_tokens", "temperature", "seed")


def machine() -> str:
    """The processor and the system."""
    return f"{processor()}, {platform.system()} {platform.machine()}"


def _without_folder(text: str) -> str:
    return Path(text).name if Path(text).is_absolute() else text


def command_of(argv: Sequence[str]) -> str:
    """The command line without the folders of this machine."""
    return " ".join(map(_without_folder, argv))


def settings_of(args: Mapping[str, Any]) -> dict[str, str]:
    """The options of a script without the folders of this machine."""
    return {name: _without_folder(str(v)) for name, v in args.items()}


def model_of(m: _core.Model) -> dict[str, Any]:
    """A loaded model, for programs."""
    return {
        "file": Path(m.path).name,
        "description": m.description,
        "bytes": m.n_bytes,
        "devices": m.devices or ["CPU"],
        "threads": m.n_threads,
        "duo_products": m.n_duo_products,
        "cpu_products": m.n_cpu_products,
        "n_ctx": m.n_ctx,
        "same_bits": m.same_bits,
    }


def head_of(models: Sequence[_core.Model], command: str, settings: dict[str, Any]) -> dict[str, Any]:
    """models: the target and the draft, if any; empty for simulated models. settings: the settings of the run."""
    names = ("target", "draft")
    return {
        "machine": machine(),
        "cores": usable_cores(),
        "llama_cpp_commit": _core.ggml_commit(),
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": command,
        **{name: model_of(m) for name, m in zip(names, models, strict=False)},
        "settings": settings,
    }


def lines_of(head: dict[str, Any]) -> list[str]:
    """The head as lines for people, with the most important settings."""
    lines = []
    for name in ("target", "draft"):
        if m := head.get(name):
            where = ", ".join(m["devices"])
            lines.append(f"{name}: {m['file']} [{m['description']}, {m['bytes'] / 1e6:,.0f} MB] on {where}")
    for name, s in head.get("servers", {}).items():
        lines.append(f"server {name}: {s['url']}, model {s['model']}")
    if "machine" in head:
        lines.append(f"machine: {head['machine']}; llama.cpp {head['llama_cpp_commit']}; {head['date']}")
    if settings := head.get("settings"):
        lines.append("settings: " + ", ".join(f"{name} {settings[name]}" for name in SHOWN if name in settings))
    return lines
