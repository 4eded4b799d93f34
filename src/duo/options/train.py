"""The options of `duo train-head` and `duo train-draft`: the teacher's data, the network, the training."""

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from duo.options.markers import BeforeValidator, Field
from duo.options.option import Count, FilePath, Int, Opt, Probability, opt

# Of the engine: where the target runs while it teaches.
OF_TARGET = (
    "n_gpu_layers", "device", "tensor_split", "split_mode", "main_gpu", "n_threads", "n_threads_batch", "cpu_mask",
    "cpu_range", "flash_attn", "load_mode", "offload_kqv", "op_offload", "override_tensor",
    "cpu_moe", "n_cpu_moe", "n_cpu_ffn", "cpu_kernels", "n_parallel",
)  # fmt: skip


def _numbers(value: Any, kind: type, least: float, most: float) -> list[Any]:
    """A list, or text such as "1,2"; empty: not all are numbers within the bounds."""
    given = value.split(",") if isinstance(value, str) else value
    try:
        found = [kind(x) for x in given]
    except (TypeError, ValueError):
        return []
    return found if all(least <= x <= most for x in found) else []


def _temperatures(value: Any) -> Any:
    if not (found := _numbers(value, float, 0, 10)):
        raise ValueError("input should be temperatures between 0 and 10, such as 1,0.8,0")
    return found


def _layers(value: Any) -> Any:
    found = _numbers(value, int, 0, 2**20)
    if len(found) != 3 or sorted(set(found)) != found:
        raise ValueError("input should be three numbers of layers, ascending, such as 2,16,29")
    return found


Temperatures = Annotated[list[float], BeforeValidator(_temperatures)]
Layers = Annotated[list[int], BeforeValidator(_layers)]
Positive = Annotated[float, Field(ge=1e-3, le=1e9, allow_inf_nan=False)]
Size = Annotated[Int, Field(ge=8, le=2**20)]


class TrainOptions(TypedDict, total=False):
    """What both commands have."""

    work: Annotated[
        FilePath | None,
        opt(None, "Folder for the teacher's data and the checkpoint; the same command goes on where it stopped. "
            "Default: the output's name with .work behind it.", "--work", metavar="DIR"),
    ]  # fmt: skip
    tokens: Annotated[Count, opt(1_000_000, "Tokens of the teacher's data.", "--tokens")]
    length: Annotated[
        Annotated[Int, Field(ge=16, le=2**20)] | None,
        opt(None, "Tokens of a text. Default: the target's training context, but at most 2048.", "--length"),
    ]
    written: Annotated[
        Probability,
        opt(0.5, "Share of texts that the target continues itself; prompts and conversations it always does.",
            "--written"),
    ]  # fmt: skip
    prompt_length: Annotated[
        Count, opt(32, "Tokens of the data in front of a text that the target continues.", "--prompt-length")
    ]
    temperatures: Annotated[
        Temperatures, opt([1.0, 0.8, 0.0], "Temperatures of these texts, in turn.", "--temps", metavar="F,F,...")
    ]
    top: Annotated[
        Annotated[Int, Field(ge=1, le=4096)],
        opt(64, "The teacher's most probable tokens that are kept for each position.", "--top-logits"),
    ]
    seed: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 1)], opt(1, "Seed of the data and the network.", "-s", "--seed")
    ]
    minutes: Annotated[
        Positive | None,
        opt(None, "Train for so long, without the teacher's time; the learning rate falls to its end by then.",
            "--minutes"),
    ]  # fmt: skip
    epochs: Annotated[Positive, opt(4.0, "Times that each text is seen, if --minutes does not end it.", "--epochs")]
    batch_tokens: Annotated[Count, opt(4096, "Tokens of a step of the training.", "--batch-tokens")]
    lr: Annotated[
        Annotated[float, Field(ge=1e-8, le=1, allow_inf_nan=False)] | None,
        opt(None, "Highest learning rate. Default: by the network's width, 1e-3 at 192 and less above.", "--lr"),
    ]
    train_device: Annotated[
        str, opt("auto", "Device of PyTorch: auto, cpu, cuda, cuda:1, ...", "--train-device", metavar="DEVICE")
    ]
    precision: Annotated[
        Literal["auto", "f32", "bf16"],
        opt("auto", "Of the products in training; auto: bf16 where the device has it.", "--precision"),
    ]
    weight_type: Annotated[
        Literal["f32", "f16", "bf16", "q8_0"], opt("q8_0", "Type of the matrices in the result.", "--type")
    ]
    n_embd: Annotated[Size | None, opt(None, "Width of the network.", "--n-embd")]
    n_head: Annotated[Count | None, opt(None, "Its attention heads.", "--n-head")]
    n_head_kv: Annotated[Count | None, opt(None, "Its heads of keys and values. Default: --n-head.", "--n-head-kv")]
    n_ff: Annotated[Size | None, opt(None, "Width of its feed-forward part.", "--n-ff")]


class HeadOptions(TrainOptions, total=False):
    """What only `duo train-head` has."""

    layers: Annotated[
        Layers | None,
        opt(None, "Layers of the target whose inputs the head reads. Default: 2, the middle one, and the last but two.",
            "--layers", metavar="N,N,N"),
    ]  # fmt: skip
    rows: Annotated[
        Annotated[Int, Field(ge=16, le=2**22)] | None,
        opt(None, "Tokens that the head can draft: the most frequent ones of the data. Default: half of the "
            "vocabulary, but at most 32000.", "--rows"),
    ]  # fmt: skip
    steps: Annotated[
        Annotated[Int, Field(ge=1, le=16)],
        opt(5, "Steps on its own states that the head is trained for.", "--steps"),
    ]


class DraftOptions(TrainOptions, total=False):
    """What only `duo train-draft` has."""

    start: Annotated[
        FilePath | None,
        Opt(None, "Go on from this draft (a llama GGUF with the target's vocabulary), as for a fine-tuned target.",
            ("--from",), (), "FILE"),
    ]  # fmt: skip
    n_layer: Annotated[Annotated[Int, Field(ge=1, le=256)] | None, opt(None, "Its layers.", "--n-layer")]
