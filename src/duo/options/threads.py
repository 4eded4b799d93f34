"""The options of `Duo` that say which CPU threads compute the models."""

from typing import Annotated, Any

from typing_extensions import TypedDict

from duo.options.markers import BeforeValidator, Field
from duo.options.option import Int, Threads, opt

# By llama.cpp's numbers (set_process_priority): low, normal, medium, high, realtime.
NICE = {-1: 5, 0: 0, 1: -5, 2: -10, 3: -20}


def _bit(value: Any) -> Any:
    if isinstance(value, str | int) and str(value).strip() in ("0", "1", "False", "True"):
        return str(value).strip() in ("1", "True")
    raise ValueError("input should be 0 or 1")


Bit = Annotated[bool, BeforeValidator(_bit)]
Priority = Annotated[Int, Field(ge=-1, le=3)]
_PRIORITIES = "-1 low, 0 normal, 1 medium, 2 high, 3 realtime. Default: that of the process (--prio)."


class ThreadOptions(TypedDict, total=False):
    """Threads and their CPUs."""

    n_threads: Annotated[
        Threads | None,
        opt(
            None,
            "CPU threads of the target. Default: all cores; while a draft works, the cores that it leaves free (if the "
            "draft is on a GPU, all but one); 1 for a model below 64 MB.",
            "-t",
            "--threads",
            env="THREADS",
        ),
    ]
    n_threads_draft: Annotated[
        Threads | None,
        opt(
            None,
            "CPU threads of the draft. Default: 1 on a GPU and for a model below 64 MB; otherwise its share of the "
            "cores while the target works, and all cores when the two take turns.",
            "-td",
            "--threads-draft",
            "--spec-draft-threads",
        ),
    ]
    n_threads_batch: Annotated[
        Threads | None,
        opt(
            None,
            "CPU threads of the target for passes of several rows: prompts, and guesses that are verified. Default: as "
            "many as -Cb and -Crb have CPUs, or the same as -t.",
            "-tb",
            "--threads-batch",
        ),
    ]
    n_threads_batch_draft: Annotated[
        Threads | None,
        opt(
            None,
            "CPU threads of the draft for passes of several rows: prompts, and branches. Default: as many as -Cbd and "
            "-Crbd have CPUs, or the same as -td.",
            "-tbd",
            "--threads-batch-draft",
            "--spec-draft-threads-batch",
        ),
    ]
    cpu_mask: Annotated[
        str | None,
        opt(None, "CPUs of the target, as a hexadecimal mask. Models for embeddings ignore it.", "-C", "--cpu-mask"),
    ]
    cpu_mask_draft: Annotated[
        str | None,
        opt(None, "CPUs of the draft, as a hexadecimal mask.", "-Cd", "--cpu-mask-draft", "--spec-draft-cpu-mask"),
    ]
    cpu_range: Annotated[
        str | None,
        opt(
            None,
            "CPUs of the target, as a range. Models for embeddings ignore it.",
            "-Cr",
            "--cpu-range",
            metavar="LO-HI",
        ),
    ]
    cpu_range_draft: Annotated[
        str | None,
        opt(
            None,
            "CPUs of the draft, as a range.",
            "-Crd",
            "--cpu-range-draft",
            "--spec-draft-cpu-range",
            metavar="LO-HI",
        ),
    ]
    cpu_mask_batch: Annotated[
        str | None,
        opt(
            None,
            "CPUs of the target for passes of several rows (see -tb), as a hexadecimal mask. Default: the same as -C. "
            "Models for embeddings ignore it.",
            "-Cb",
            "--cpu-mask-batch",
        ),
    ]
    cpu_mask_batch_draft: Annotated[
        str | None,
        opt(
            None,
            "CPUs of the draft for passes of several rows, as a hexadecimal mask. Default: the same as -Cd.",
            "-Cbd",
            "--cpu-mask-batch-draft",
            "--spec-draft-cpu-mask-batch",
        ),
    ]
    cpu_range_batch: Annotated[
        str | None,
        opt(
            None,
            "CPUs of the target for passes of several rows, as a range. Models for embeddings ignore it.",
            "-Crb",
            "--cpu-range-batch",
            metavar="LO-HI",
        ),
    ]
    cpu_range_batch_draft: Annotated[
        str | None,
        opt(
            None,
            "CPUs of the draft for passes of several rows, as a range.",
            "-Crbd",
            "--cpu-range-batch-draft",
            "--spec-draft-cpu-range-batch",
            metavar="LO-HI",
        ),
    ]
    cpu_strict: Annotated[
        Bit | None,
        opt(
            None,
            "1: each thread of the target has one CPU of -C and -Cr, in turn; without these it changes nothing. "
            "Default: 0, each thread may use all of them. Models for embeddings ignore it.",
            "--cpu-strict",
            metavar="0|1",
        ),
    ]
    cpu_strict_draft: Annotated[
        Bit | None,
        opt(
            None,
            "The same for the draft's -Cd and -Crd, from the last one on. Default: as --cpu-strict.",
            "--cpu-strict-draft",
            "--spec-draft-cpu-strict",
            metavar="0|1",
        ),
    ]
    cpu_strict_batch: Annotated[
        Bit | None,
        opt(
            None,
            "The same for the target's passes of several rows. Default: as --cpu-strict. "
            "Models for embeddings ignore it.",
            "--cpu-strict-batch",
            metavar="0|1",
        ),
    ]
    cpu_strict_batch_draft: Annotated[
        Bit | None,
        opt(
            None,
            "The same for the draft's passes of several rows. Default: as --cpu-strict-draft.",
            "--cpu-strict-batch-draft",
            "--spec-draft-cpu-strict-batch",
            metavar="0|1",
        ),
    ]
    prio_batch: Annotated[
        Priority | None,
        opt(
            None,
            f"Priority of the target's threads in passes of several rows: {_PRIORITIES} "
            "Models for embeddings ignore it.",
            "--prio-batch",
        ),
    ]
    prio_draft: Annotated[
        Priority | None,
        opt(
            None,
            f"Priority of the draft's threads in passes of one row: {_PRIORITIES}",
            "--prio-draft",
            "--spec-draft-prio",
        ),
    ]
    prio_batch_draft: Annotated[
        Priority | None,
        opt(
            None,
            f"Priority of the draft's threads in passes of several rows: {_PRIORITIES}",
            "--prio-batch-draft",
            "--spec-draft-prio-batch",
        ),
    ]
