"""The options of `Duo` that keep feed-forward weights on the CPU while the rest of their layers is on a device."""

from typing import Annotated

from typing_extensions import TypedDict

from duo.options.markers import Field
from duo.options.option import Int, opt

# llama.cpp's common/common.h: LLM_FFN_EXPS_REGEX, LLM_FFN_DENSE_REGEX
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
DENSE = r"\.ffn_(up|down|gate)\."

Layers = Annotated[Int, Field(ge=0, le=2**31 - 1)]
N_LAYER_MAX = 512  # LLAMA_MAX_LAYERS of libllama


class ExpertOptions(TypedDict, total=False):
    """A mixture of experts reads few of its experts for a token, so a CPU is fast enough for them."""

    cpu_moe: Annotated[
        bool,
        opt(False, "Keep the experts of all layers of the target on the CPU. -ot overrides this.",
            "-cmoe/", "--cpu-moe/--no-cpu-moe", env="CPU_MOE"),
    ]  # fmt: skip
    n_cpu_moe: Annotated[
        Layers,
        opt(0, "Keep the experts of the target's first N layers on the CPU.", "-ncmoe", "--n-cpu-moe", env="N_CPU_MOE"),
    ]
    n_cpu_ffn: Annotated[
        Layers,
        opt(0, "Keep the dense feed-forward weights of the target's first N layers on the CPU.", "-ncffn",
            "--n-cpu-ffn", env="N_CPU_FFN"),
    ]  # fmt: skip
    cpu_moe_draft: Annotated[
        bool,
        opt(False, "Keep the experts of all layers of the draft on the CPU.", "-cmoed/", "--spec-draft-cpu-moe/",
            "--cpu-moe-draft/--no-cpu-moe-draft", env="SPEC_DRAFT_CPU_MOE"),
    ]  # fmt: skip
    n_cpu_moe_draft: Annotated[
        Layers,
        opt(0, "Keep the experts of the draft's first N layers on the CPU.", "-ncmoed", "--n-cpu-moe-draft",
            "--spec-draft-n-cpu-moe", "--spec-draft-ncmoe", env="SPEC_DRAFT_N_CPU_MOE"),
    ]  # fmt: skip


def overrides(cpu_moe: bool, n_cpu_moe: int, n_cpu_ffn: int) -> list[tuple[str, str]]:
    """(pattern, memory) for these options, as -ot has them."""
    patterns = [EXPERTS] if cpu_moe else []
    for n, kind in ((n_cpu_moe, EXPERTS), (n_cpu_ffn, DENSE)):
        if n:  # one pattern, because libllama compiles each of them for each tensor
            patterns.append(rf"blk\.({'|'.join(map(str, range(min(n, N_LAYER_MAX))))}){kind}")
    return [(pattern, "CPU") for pattern in patterns]
