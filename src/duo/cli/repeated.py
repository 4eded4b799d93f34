"""Options that may be given several times, as llama.cpp collects them (push_back in common/arg.cpp)."""

from __future__ import annotations

from typing import Any

import click


class Repeatable(click.Option):
    """Its values are a tuple. A variable of the environment is one value, whatever spaces it has."""

    def __init__(self, names: list[str], **attributes: Any) -> None:
        super().__init__(names, multiple=True, **attributes)

    def value_from_envvar(self, ctx: click.Context) -> tuple[str, ...] | None:
        value = self.resolve_envvar_value(ctx)
        return None if value is None else (value,)


def _joined(_ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> str | None:
    return ",".join(values) if values else None


class CommaSeparated(Repeatable):
    """Its value is one text: --lora A --lora B is --lora A,B."""

    def __init__(self, names: list[str], **attributes: Any) -> None:
        super().__init__(names, callback=_joined, **attributes)
