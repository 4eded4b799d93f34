"""`duo devices`: the devices of this machine and its CPU kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from duo.cli import show
from duo.errors import BadValueError, DuoError

if TYPE_CHECKING:
    from rich.table import Table


def _endpoints(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[str]:
    from duo.options.check import WrongValueError, check_value
    from duo.options.engine import EngineOptions

    try:
        return check_value(EngineOptions, "rpc", value) or []
    except WrongValueError as e:
        raise BadValueError(f"--rpc: {e.why}") from None


def list_remote(endpoints: list[str]) -> None:
    """Prints the devices of each server. Raises DuoError: some server did not answer."""
    from duo.remote.rpc.server import devices_of_all, require_rpc

    require_rpc()
    failed: list[DuoError] = []
    for endpoint, answer in devices_of_all(endpoints):
        if isinstance(answer, DuoError):
            failed.append(answer)
            continue
        for d in answer:
            click.echo(f"{d.name}: {endpoint} ({d.total >> 20} MiB, {d.free >> 20} MiB free)")
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
def devices(measure: bool, servers: list[str]) -> None:
    """List the devices and the CPU's kernels."""
    if servers:
        list_remote(servers)
        return
    from rich.console import Console

    from duo import _core
    from duo.build_advice import is_bundled, rebuild
    from duo.placement import guard, kernels
    from duo.placement.cpus import usable_cores
    from duo.placement.devices import devices as all_devices

    name, why_not = _core.kernels()
    for d in all_devices():
        if d.type == "accel":
            continue
        memory = f"{d.total >> 20} MiB, {d.free >> 20} MiB free" if d.total else "no own memory"
        what = f"{kernels.processor()}, {usable_cores()} cores" if d.type == "cpu" else d.description
        click.echo(f"{d.name}: {what} ({memory})")
    click.echo(
        f"CPU kernels: duo ({name}) for {', '.join(_core.kernel_types())}" if name else f"CPU kernels: stock; {why_not}"
    )
    if is_bundled():
        chosen = ", ".join(library.stem.removeprefix("libggml-cpu-") for library in guard.libraries())
        click.echo(f"llama.cpp's CPU code: {chosen}")
    for line in guard.find().lines():
        click.echo(line)
    guard.ensure()
    if not _core.supports_rpc():
        show.warn(f"this llama-cpp-python was built without RPC; to get it: {rebuild()}")
    if measure and name:
        Console().print(_races(sorted({1, usable_cores()})))


def _races(teams: list[int]) -> Table:
    """Time of stock kernels over time of duo's kernels for every type, by threads and width."""
    from rich.table import Table

    from duo import _core
    from duo.placement import kernels

    about = "time of stock / time of duo by tokens at once; above 1 duo's kernels are faster"
    table = Table("type", "threads", *map(str, kernels.WIDTHS), "ahead", "faster", title=about)
    for t in _core.kernel_types():
        for n, speed in zip(teams, kernels.measure(t, teams), strict=True):
            alone, drafted = (speed.duo_is_faster(drafted=drafted) for drafted in (False, True))
            faster = (
                "duo" if alone and drafted else "duo with a draft" if drafted else "duo alone" if alone else "stock"
            )
            ratios = (f"{speed.stock[w] / us:.2f}" for w, us in speed.duo.items())
            table.add_row(t, str(n), *ratios, str(speed.ahead), faster)
    return table
