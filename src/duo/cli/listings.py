"""What --list-devices and --cache-list print in place of a run."""

from __future__ import annotations

import json
from typing import Any

import click

from duo.cli import show


def listing_options(more: tuple[str, str] = ("", "")) -> list[click.Option]:
    """more: what the help says of each beyond its first words."""
    return [
        click.Option(["list_devices", "--list-devices"], is_flag=True, help=f"List the devices and exit{more[0]}."),
        click.Option(["cache_list", "-cl", "--cache-list"], is_flag=True,
                     help=f"List the models in the cache of the Hugging Face Hub and exit{more[1]}."),
    ]  # fmt: skip


def listed(params: dict[str, Any]) -> bool:
    """Prints the list that the options ask for. False: none."""
    if params["list_devices"]:
        _list_devices(as_json=params.get("json", False))
    elif params["cache_list"]:
        _list_cache(as_json=params.get("json", False))
    else:
        return False
    return True


def _list_devices(*, as_json: bool) -> None:
    from duo import _core
    from duo.build_advice import rebuild
    from duo.placement.devices import devices

    gpus = [d for d in devices() if d.type not in ("cpu", "accel")]
    if as_json:
        print(json.dumps({"devices": [d._asdict() for d in gpus]}))
        return
    print("Available devices:")
    for d in gpus:
        print(f"  {d.name}: {d.description} ({d.total >> 20} MiB, {d.free >> 20} MiB free)")
    if not _core.supports_rpc():
        show.warn(f"this llama-cpp-python was built without RPC; to get it: {rebuild()}")


def _list_cache(*, as_json: bool) -> None:
    from duo.models.hub.repository import cached_models

    names = cached_models()
    if as_json:
        print(json.dumps({"models": names}))
        return
    print(f"number of models in cache: {len(names)}")
    for i, name in enumerate(names, 1):
        print(f"{i:4}. {name}")
