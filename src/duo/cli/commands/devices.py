"""`duo devices`: the devices of this machine and its CPU kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from duo.cli import show
from duo.errors import BadValueError, DuoError

if TYPE_CHECKING:
    from rich.table import Table

    from duo.placement.devices import Device
    from duo.placement.kernels import KernelSpeed


def _endpoints(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[str]:
    from duo.options.check import WrongValueError, check_value
    from duo.options.engine import EngineOptions

    try:
        return check_value(EngineOptions, "rpc", value) or []
    except WrongValueError as e:
        raise BadValueError(f"--rpc: {e.why}") from None


def list_remote(endpoints: list[str], *, as_json: bool) -> None:
    """Prints the devices of each server. Raises DuoError: some server did not answer."""
    from duo.remote.rpc.server import devices_of_all, require_rpc

    require_rpc()
    failed: list[DuoError] = []
    servers: list[dict[str, Any]] = []
    for endpoint, answer in devices_of_all(endpoints):
        if isinstance(answer, DuoError):
            failed.append(answer)
            servers.append({"endpoint": endpoint, "devices": [], "error": str(answer)})
            continue
        servers.append({"endpoint": endpoint, "devices": [d._asdict() for d in answer], "error": None})
        for d in answer:
            if not as_json:
                click.echo(f"{d.name}: {endpoint} ({d.total >> 20} MiB, {d.free >> 20} MiB free)")
    if as_json:
        click.echo(json.dumps({"servers": servers}, indent=1))
    for error in failed[:-1]:
        show.warn(str(error))
    if failed:
        raise failed[-1]


@click.command("devices")
@click.option(
    "--measure",
    is_flag=True,
    help="Compare the speed of duo's and stock CPU kernels for each weight type (takes seconds).",
)
@click.option(
    "servers",
    "--rpc",
    callback=_endpoints,
    metavar="HOST:PORT,...",
    help="List the devices of these RPC servers instead.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all as JSON. Sizes are in bytes, times in microseconds.")
def devices(measure: bool, servers: list[str], as_json: bool) -> None:
    """List the devices and the CPU's kernels."""
    if servers:
        list_remote(servers, as_json=as_json)
        return
    from duo import _core

    races = measure and bool(_core.kernels()[0])
    if as_json:
        click.echo(json.dumps(_as_dict() | ({"races": _races_as_dicts()} if races else {}), indent=1))
        return
    _print()
    if races:
        from rich.console import Console

        Console().print(_races())


def _print() -> None:
    from duo import _core
    from duo.build_advice import is_bundled, rebuild
    from duo.placement import guard, kernels, plugins
    from duo.placement.cpus import usable_cores

    name, why_not = _core.kernels()
    for d in _all_devices():
        memory = f"{d.total >> 20} MiB, {d.free >> 20} MiB free" if d.total else "no own memory"
        what = f"{kernels.processor()}, {usable_cores()} cores" if d.type == "cpu" else d.description
        click.echo(f"{d.name}: {what} ({memory})")
    for line in plugins.lines():
        click.echo(line)
    click.echo(
        f"CPU kernels: duo ({name}) for {', '.join(_core.kernel_types())}" if name else f"CPU kernels: stock; {why_not}"
    )
    if is_bundled():
        click.echo(f"llama.cpp's CPU code: {', '.join(_builds())}")
    for line in guard.find().lines():
        click.echo(line)
    guard.ensure()
    if not _core.supports_rpc():
        show.warn(f"this llama-cpp-python was built without RPC; to get it: {rebuild()}")


def _all_devices() -> list[Device]:
    from duo.placement.devices import devices as all_devices

    return [d for d in all_devices() if d.type != "accel"]


def _builds() -> list[str]:
    """The kinds of processor for which llama.cpp's CPU code was compiled that is used here."""
    from duo.placement import guard

    return [library.stem.removeprefix("libggml-cpu-") for library in guard.libraries()]


def _as_dict() -> dict[str, Any]:
    """What is known of this machine, as JSON has it."""
    from duo import _core
    from duo.build_advice import is_bundled
    from duo.placement import guard, kernels, plugins
    from duo.placement.cpus import usable_cores

    name, why_not = _core.kernels()
    finding = guard.find()
    guard.ensure()
    return {
        "devices": [d._asdict() for d in _all_devices()],
        "without_devices": plugins.without_devices(),
        "processor": kernels.processor(),
        "cores": usable_cores(),
        "cpu_kernels": name or None,
        "why_stock": why_not or None,
        "kernel_types": _core.kernel_types() if name else [],
        "trials": dict(finding.verdicts),
        "not_tried": finding.not_tried or None,
        "llama_cpp_cpu_code": _builds() if is_bundled() else None,
        "rpc": _core.supports_rpc(),
    }


def _measured() -> Iterator[tuple[str, int, KernelSpeed]]:
    """A weight type, a number of threads, and the times of a race."""
    from duo import _core
    from duo.placement import kernels
    from duo.placement.cpus import usable_cores

    teams = sorted({1, usable_cores()})
    for t in _core.kernel_types():
        for n, speed in zip(teams, kernels.measure(t, teams), strict=True):
            yield t, n, speed


def _faster(speed: KernelSpeed) -> str:
    alone, drafted = (speed.duo_is_faster(drafted=drafted) for drafted in (False, True))
    return "duo" if alone and drafted else "duo with a draft" if drafted else "duo alone" if alone else "stock"


def _races() -> Table:
    """Time of stock kernels over time of duo's kernels for every type, by threads and width."""
    from rich.table import Table

    from duo.placement import kernels

    about = "time of stock / time of duo by tokens at once; above 1 duo's kernels are faster"
    table = Table("type", "threads", *map(str, kernels.WIDTHS), "ahead", "faster", title=about)
    for t, n, speed in _measured():
        ratios = (f"{speed.stock[w] / us:.2f}" for w, us in speed.duo.items())
        table.add_row(t, str(n), *ratios, str(speed.ahead), _faster(speed))
    return table


def _races_as_dicts() -> list[dict[str, Any]]:
    """Times of one product, by the number of tokens at once."""
    return [
        {"type": t, "threads": n, "stock": speed.stock, "duo": speed.duo, "ahead": speed.ahead,
         "faster": _faster(speed)}
        for t, n, speed in _measured()
    ]  # fmt: skip
