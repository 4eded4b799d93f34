"""The options of `Duo` that say on which devices the models are."""

from typing import Annotated

from typing_extensions import TypedDict

from duo.options.markers import Field
from duo.options.option import Endpoints, Int, LayerCount, Shares, SplitMode, opt


class PlaceOptions(TypedDict, total=False):
    """Layers, devices and tensors."""

    n_gpu_layers: Annotated[
        LayerCount,
        opt(
            "auto",
            "Layers of the target on its devices. auto: as many as fit beside the draft, which is placed first.",
            "-ngl",
            "--gpu-layers",
            "--n-gpu-layers",
            env="N_GPU_LAYERS",
        ),
    ]
    n_gpu_layers_draft: Annotated[
        LayerCount,
        opt(
            "auto",
            "Layers of the draft on its devices. auto: as many as fit; the draft is placed before the target.",
            "-ngld",
            "--gpu-layers-draft",
            "--n-gpu-layers-draft",
            "--spec-draft-ngl",
            env="N_GPU_LAYERS_DRAFT",
        ),
    ]
    device: Annotated[
        str | list[str] | None,
        opt(
            None,
            "Devices for the target, comma-separated; none: CPU only. Default: every local GPU.",
            "-dev",
            "--device",
            env="DEVICE",
            metavar="DEV,DEV",
        ),
    ]
    device_draft: Annotated[
        str | list[str] | None,
        opt(
            None,
            "Devices for the draft, comma-separated; none: CPU only. Default: every local GPU.",
            "-devd",
            "--device-draft",
            "--spec-draft-device",
            metavar="DEV,DEV",
        ),
    ]
    tensor_split: Annotated[
        Shares | None,
        opt(
            None,
            "Share of the target for each of its devices, such as 3,1. Default: by free memory.",
            "-ts",
            "--tensor-split",
            env="TENSOR_SPLIT",
            metavar="N,N",
        ),
    ]
    split_mode: Annotated[
        SplitMode,
        opt("layer", "How to split the target over several devices.", "-sm", "--split-mode", env="SPLIT_MODE"),
    ]
    main_gpu: Annotated[
        Annotated[Int, Field(ge=0, le=127)],
        opt(
            0,
            "With -sm none: the number of the device that holds the target, from 0.",
            "-mg",
            "--main-gpu",
            env="MAIN_GPU",
        ),
    ]
    rpc: Annotated[
        Endpoints | None,
        opt(
            None,
            "GGML RPC servers (duo rpc-server). Their devices (RPC0, RPC1, ...) run the draft, unless -dev gives them "
            "to the target.",
            "--rpc",
            env="RPC",
            metavar="HOST:PORT,...",
        ),
    ]
    override_tensor: Annotated[
        str | list[str] | None,
        opt(
            None,
            "Memory for tensors of the target, as PATTERN=MEMORY, such as ffn_up=CPU. CPU uses the kernels of "
            "--cpu-kernels.",
            "-ot",
            "--override-tensor",
            env="OVERRIDE_TENSOR",
            metavar="PATTERN=MEMORY,...",
        ),
    ]
    override_tensor_draft: Annotated[
        str | list[str] | None,
        opt(
            None,
            "The same for the draft.",
            "-otd",
            "--override-tensor-draft",
            "--spec-draft-override-tensor",
            metavar="PATTERN=MEMORY,...",
        ),
    ]
