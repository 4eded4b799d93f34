"""Modules that take half a second to import. Each test process collects every file, but one process runs its tests."""

from importlib import import_module
from typing import Any


class Late:
    """The module `name`, imported when a test uses one of its names."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, member: str) -> Any:
        if member.startswith("_"):  # pytest looks for fixtures while it collects
            raise AttributeError(member)
        return getattr(import_module(self.name), member)
