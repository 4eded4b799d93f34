"""The options of `Duo` that say which CPU threads compute the models."""

from typing import Annotated

from typing_extensions import TypedDict

from duo.options.option import Threads, opt


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
        opt(None, "CPU threads of the target for prompts. Default: the same as -t.", "-tb", "--threads-batch"),
    ]
    n_threads_batch_draft: Annotated[
        Threads | None,
        opt(
            None,
            "CPU threads of the draft for prompts. Default: the same as -td.",
            "-tbd",
            "--threads-batch-draft",
            "--spec-draft-threads-batch",
        ),
    ]
    cpu_mask: Annotated[str | None, opt(None, "CPUs of the target, as a hexadecimal mask.", "-C", "--cpu-mask")]
    cpu_mask_draft: Annotated[
        str | None,
        opt(None, "CPUs of the draft, as a hexadecimal mask.", "-Cd", "--cpu-mask-draft", "--spec-draft-cpu-mask"),
    ]
    cpu_range: Annotated[
        str | None, opt(None, "CPUs of the target, as a range.", "-Cr", "--cpu-range", metavar="LO-HI")
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
