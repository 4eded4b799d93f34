"""The options of `duo train-head` and `duo train-draft`: the teacher's data, the network, the training."""

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from duo.options.markers import BeforeValidator, Field
from duo.options.option import Count, FilePath, Int, Opt, Probability, opt

# Options of the engine: where the target runs while it teaches.
OF_TARGET = (
    "n_gpu_layers", "device", "tensor_split", "split_mode", "main_gpu", "n_threads", "n_threads_batch", "cpu_mask",
    "cpu_range", "flash_attn", "load_mode", "offload_kqv", "op_offload", "override_tensor",
    "cpu_moe", "n_cpu_moe", "n_cpu_ffn", "cpu_kernels", "n_parallel",
)  # fmt: skip


def _numbers(value: Any, kind: type, least: float, most: float) -> list[Any]:
    """A list, or text such as "1,2"; empty: not all are numbers within the bounds."""
    parts = value.split(",") if isinstance(value, str) else value
    try:
        numbers = [kind(x) for x in parts]
    except (TypeError, ValueError):
        return []
    return numbers if all(least <= x <= most for x in numbers) else []


def _temperatures(value: Any) -> Any:
    if not (numbers := _numbers(value, float, 0, 10)):
        raise ValueError("input should be temperatures between 0 and 10, such as 1,0.8,0")
    return numbers


def _layers(value: Any) -> Any:
    numbers = _numbers(value, int, 0, 2**20)
    if len(numbers) != 3 or sorted(set(numbers)) != numbers:
        raise ValueError("input should be three numbers of layers, ascending, such as 2,16,29")
    return numbers


Temperatures = Annotated[list[float], BeforeValidator(_temperatures)]
Layers = Annotated[list[int], BeforeValidator(_layers)]
Positive = Annotated[float, Field(ge=1e-3, le=1e9, allow_inf_nan=False)]
Size = Annotated[Int, Field(ge=8, le=2**20)]


class TrainOptions(TypedDict, total=False):
    """What both commands have."""

    work: Annotated[
        FilePath | None,
        opt(None, "Folder for the teacher's data and the checkpoint. Run the same command again to continue. "
                  "Default: the name of the output with .work appended.", "--work", metavar="DIR"),
    ]  # fmt: skip
    tokens: Annotated[Count, opt(1_000_000, "Size of the teacher's data in tokens.", "--tokens")]
    length: Annotated[
        Annotated[Int, Field(ge=16, le=2**20)] | None,
        opt(
            None, "Length of the texts in tokens. Default: the target's training context, but at most 2048.", "--length"
        ),
    ]
    written: Annotated[
        Probability,
        opt(0.5, "Share of the texts that the target continues itself. It always continues prompts and "
                 "conversations.",
            "--written"),
    ]  # fmt: skip
    prompt_length: Annotated[
        Count, opt(32, "Number of tokens that the target gets of a text that it continues.", "--prompt-length")
    ]
    temperatures: Annotated[
        Temperatures,
        opt(
            [1.0, 0.8, 0.0], "Temperatures at which the target continues texts, in turn.", "--temps", metavar="F,F,..."
        ),
    ]
    top: Annotated[
        Annotated[Int, Field(ge=1, le=4096)],
        opt(64, "Number of the teacher's most probable tokens that are kept for each position.", "--top-logits"),
    ]
    seed: Annotated[
        Annotated[Int, Field(ge=0, le=2**31 - 1)], opt(1, "Seed of the data and the network.", "-s", "--seed")
    ]
    minutes: Annotated[
        Positive | None,
        opt(None, "Minutes of training, without the teacher's time. The learning rate falls to its minimum in this "
                  "time.",
            "--minutes"),
    ]  # fmt: skip
    epochs: Annotated[
        Positive, opt(4.0, "How often each text is used, unless --minutes ends the training earlier.", "--epochs")
    ]
    batch_tokens: Annotated[Count, opt(4096, "Number of tokens in a training step.", "--batch-tokens")]
    lr: Annotated[
        Annotated[float, Field(ge=1e-8, le=1, allow_inf_nan=False)] | None,
        opt(None, "Highest learning rate. Default: 1e-3 for a width of 192, and less for wider networks.", "--lr"),
    ]
    train_device: Annotated[
        str, opt("auto", "PyTorch device: auto, cpu, cuda, cuda:1, ...", "--train-device", metavar="DEVICE")
    ]
    precision: Annotated[
        Literal["auto", "f32", "bf16"],
        opt("auto", "Precision of the products in training. auto: bf16 where the device has it.", "--precision"),
    ]
    weight_type: Annotated[
        Literal["f32", "f16", "bf16", "q8_0"], opt("q8_0", "Type of the matrices in the output.", "--type")
    ]
    n_embd: Annotated[Size | None, opt(None, "Width of the network.", "--n-embd")]
    n_head: Annotated[Count | None, opt(None, "Number of attention heads.", "--n-head")]
    n_head_kv: Annotated[
        Count | None, opt(None, "Number of heads of keys and values. Default: --n-head.", "--n-head-kv")
    ]
    n_ff: Annotated[Size | None, opt(None, "Width of the feed-forward layers.", "--n-ff")]


class HeadOptions(TrainOptions, total=False):
    """What only `duo train-head` has."""

    layers: Annotated[
        Layers | None,
        opt(None, "Layers of the target whose inputs the head reads. Default: 2, the middle one, and the last but two.",
            "--layers", metavar="N,N,N"),
    ]  # fmt: skip
    rows: Annotated[
        Annotated[Int, Field(ge=16, le=2**22)] | None,
        opt(None, "Number of tokens that the head can draft: the most frequent ones of the data. Default: half of "
                  "the vocabulary, but at most 32000.", "--rows"),
    ]  # fmt: skip
    steps: Annotated[
        Annotated[Int, Field(ge=1, le=16)],
        opt(5, "Number of steps on its own states that the head is trained for.", "--steps"),
    ]


class DraftOptions(TrainOptions, total=False):
    """What only `duo train-draft` has."""

    start: Annotated[
        FilePath | None,
        Opt(None, "Continue from this draft (a llama GGUF with the target's vocabulary), for a fine-tuned target "
                  "for example.",
            ("--from",), (), "FILE"),
    ]  # fmt: skip
    n_layer: Annotated[Annotated[Int, Field(ge=1, le=256)] | None, opt(None, "Number of layers.", "--n-layer")]
