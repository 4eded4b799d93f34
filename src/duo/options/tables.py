"""Every option in one place: its Python keyword, type, bounds, command-line spellings, environment name and help.

The TypedDicts are what `Duo(...)`, `generate(...)` and the hosts take as keywords; options.check checks values against
them, and duo.cli.options makes the command line from them. llama.cpp's spellings, old and new, are aliases of one
option. Their modules do not postpone annotations (PEP 563): nothing then needs get_type_hints, 15 ms of each start.
"""

from __future__ import annotations

from typing import get_args

from duo.options.endpoint import EndpointOptions
from duo.options.engine import EngineOptions
from duo.options.generate import GenerateOptions
from duo.options.host import HostOptions
from duo.options.option import Opt
from duo.options.serve import ServeOptions
from duo.options.train import DraftOptions, HeadOptions


def options_of(table: type) -> dict[str, Opt]:
    """Opt by keyword, in the order of definition."""
    found = {name: [m for m in get_args(hint) if isinstance(m, Opt)] for name, hint in table.__annotations__.items()}
    return {name: of[0] for name, of in found.items() if of}


ENGINE_OPTIONS = options_of(EngineOptions)
GENERATE_OPTIONS = options_of(GenerateOptions)
HOST_OPTIONS = options_of(HostOptions)
SERVE_OPTIONS = options_of(ServeOptions)
ENDPOINT_OPTIONS = options_of(EndpointOptions)
TRAIN_HEAD_OPTIONS = options_of(HeadOptions)
TRAIN_DRAFT_OPTIONS = options_of(DraftOptions)
