"""The options of `Duo` that say how weights are checked, and where they are kept."""

from typing import Annotated, Any

from typing_extensions import TypedDict

from duo.options.markers import BeforeValidator, Field
from duo.options.option import Int, opt


def _margins(value: Any) -> Any:
    """A list of MiB, or text such as "1024,512" or "1024/512", as llama.cpp has it."""
    parts = value.replace("/", ",").split(",") if isinstance(value, str) else value
    try:
        margins = [int(x) for x in ([parts] if isinstance(parts, int) else parts)]
    except (TypeError, ValueError):
        margins = []
    if not margins or not all(0 <= x < 2**31 for x in margins):
        raise ValueError("input should be a number of MiB for each device, such as 1024,512")
    return margins


Margins = Annotated[list[int], BeforeValidator(_margins)]


class WeightOptions(TypedDict, total=False):
    """Options of both models."""

    check_tensors: Annotated[
        bool,
        opt(
            False, "Look for NaN and infinity in the weights while they are read.", "--check-tensors/--no-check-tensors"
        ),
    ]
    host_buffers: Annotated[
        bool,
        opt(
            True,
            "Let a GPU allocate the memory for weights that stay on the CPU.",
            "--host-buffers/--no-host",
            env="NO_HOST",
        ),
    ]
    repack: Annotated[
        bool,
        opt(True, "Pack weights for the CPU's kernels; otherwise stock kernels read them as they are in the file.",
            "--repack/--no-repack", " /-nr", env="REPACK"),
    ]  # fmt: skip
    packed: Annotated[
        str,
        opt("auto", "File of packed weights (from duo pack), so that they need not be packed while loading. auto: "
                    "the one beside the model or in duo's cache, if there is one; off: none. With --no-mmap the "
                    "file is read, not mapped.",
            "--packed", metavar="auto|off|FILE"),
    ]  # fmt: skip
    packed_draft: Annotated[
        str,
        opt(
            "auto",
            "File of packed weights of the draft (from duo pack --draft); otherwise as --packed.",
            "--packed-draft",
            metavar="auto|off|FILE",
        ),
    ]
    fit_target: Annotated[
        Margins | None,
        opt(None, "MiB that -ngl auto leaves free on each device: one number for all devices, or one for each. "
                  "Default: 1024, or a sixteenth of a small device.",
            "-fitt", "--fit-target", env="FIT_TARGET", metavar="MIB,..."),
    ]  # fmt: skip
    fit_ctx: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 2)] | None,
        opt(None, "Without -c, choose the context by the free memory: as large as it holds without a layer leaving its "
                  "device, N tokens at least, and the model's own at most. Default: see -c.",
            "-fitc", "--fit-ctx", env="FIT_CTX"),
    ]  # fmt: skip
