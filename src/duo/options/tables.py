"""Every option in one place: its Python keyword, type, bounds, command-line spellings, environment name and help.

The TypedDicts are what `Duo(...)`, `generate(...)` and the hosts take as keywords; options.check checks values against
them, and duo.cli.options makes the command line from them. llama.cpp's spellings, old and new, are aliases of one
option. Their modules do not postpone annotations (PEP 563): nothing then needs get_type_hints, 15 ms of each start.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args

from duo.options.engine import EngineOptions
from duo.options.generate import GenerateOptions
from duo.options.option import Opt


def options_of(table: type) -> dict[str, Opt]:
    """Opt by keyword, in the order of definition."""
    markers = {name: [m for m in get_args(hint) if isinstance(m, Opt)] for name, hint in table.__annotations__.items()}
    return {name: of[0] for name, of in markers.items() if of}


ENGINE_OPTIONS = options_of(EngineOptions)
GENERATE_OPTIONS = options_of(GenerateOptions)
# Of commands. Each is made when it is used: the others would take a twentieth of each start.
_OF_COMMANDS = {
    "HOST_OPTIONS": ("host", "HostOptions"),
    "SERVE_OPTIONS": ("serve", "ServeOptions"),
    "ENDPOINT_OPTIONS": ("endpoint", "EndpointOptions"),
    "TRAIN_HEAD_OPTIONS": ("train", "HeadOptions"),
    "TRAIN_DRAFT_OPTIONS": ("train", "DraftOptions"),
}

if TYPE_CHECKING:
    HOST_OPTIONS: dict[str, Opt]
    SERVE_OPTIONS: dict[str, Opt]
    ENDPOINT_OPTIONS: dict[str, Opt]
    TRAIN_HEAD_OPTIONS: dict[str, Opt]
    TRAIN_DRAFT_OPTIONS: dict[str, Opt]
else:

    def __getattr__(name: str) -> Any:
        if name not in _OF_COMMANDS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, table = _OF_COMMANDS[name]
        globals()[name] = options = options_of(getattr(import_module(f"duo.options.{module}"), table))
        return options
