"""`duo devices`: what this machine can compute on, and with which kernels."""

from __future__ import annotations

import click
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table

from duo import _core
from duo.build_advice import rebuild
from duo.cli import show
from duo.errors import DuoError
from duo.options.option import Endpoints
from duo.placement import guard, kernels
from duo.placement.cpus import usable_cores
from duo.placement.devices import devices as all_devices
from duo.remote.rpc.server import devices_of_all, require_rpc


def _endpoints(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[str]:
    try:
        return [] if value is None else TypeAdapter[list[str]](Endpoints).validate_python(value)
    except ValidationError as e:
        raise DuoError(f"--rpc: {e.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def list_remote(endpoints: list[str]) -> None:
    """Each server's devices, one after the other. Raises DuoError if there were any that could not be asked."""
    require_rpc()
    failed = []
    for endpoint, found in devices_of_all(endpoints):
        if isinstance(found, str):
            failed.append(found)
            continue
        for d in found:
            click.echo(f"{d.name}: {endpoint} ({d.total >> 20} MiB, {d.free >> 20} MiB free)")
    for sentence in failed[:-1]:
        show.warn(sentence)
    if failed:
        raise DuoError(failed[-1])


@click.command("devices")
@click.option("--measure", is_flag=True, help="Race duo's CPU kernels against stock ones, type by type (seconds).")
@click.option(
    "servers", "--rpc", callback=_endpoints, metavar="HOST:PORT,...", help="List these RPC servers' devices instead."
)
def devices(measure: bool, servers: list[str]) -> None:
    """List the devices and the CPU's kernels."""
    if servers:
        list_remote(servers)
        return
    name, why_not = _core.kernels()
    for d in all_devices():
        if d.type == "accel":
            continue
        memory = f"{d.total >> 20} MiB, {d.free >> 20} MiB free" if d.total else "no memory of its own"
        what = f"{kernels.processor()}, {usable_cores()} cores" if d.type == "cpu" else d.description
        click.echo(f"{d.name}: {what} ({memory})")
    click.echo(
        f"CPU kernels: duo ({name}) for {', '.join(_core.kernel_types())}" if name else f"CPU kernels: stock; {why_not}"
    )
    for line in guard.find().lines():
        click.echo(line)
    guard.ensure()
    if not _core.supports_rpc():
        show.warn(f"this llama-cpp-python was built without RPC; to have it: {rebuild()}")
    if measure and name:
        Console().print(_races(sorted({1, usable_cores()})))


def _races(teams: list[int]) -> Table:
    """stock / duo of every type, by threads and width."""
    about = "stock / duo by tokens at once: above 1 duo's kernels are faster"
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
