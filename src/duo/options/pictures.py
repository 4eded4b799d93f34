"""Options of pictures: the projector that makes rows of them, and the pictures of a text."""

import os
from typing import Annotated, Any

from typing_extensions import TypedDict

from duo.options.markers import BeforeValidator, Field
from duo.options.option import FilePath, Int, Opt, opt

Rows = Annotated[Int, Field(ge=1, le=1 << 16)]


def _pictures(value: Any) -> Any:
    """Accepts paths and bytes, or one of them; text may name several, with commas between, as in llama.cpp."""
    several = value if isinstance(value, list | tuple) else [value]
    pictures: list[str | bytes] = []
    for x in several:
        if isinstance(x, bytes | bytearray):
            pictures.append(bytes(x))
        elif isinstance(x, str | os.PathLike) and os.fspath(x):
            pictures += os.fsdecode(x).split(",") if isinstance(x, str) else [os.fsdecode(x)]
        else:
            raise ValueError("input should be the paths of pictures, or their bytes")
    return pictures


Pictures = Annotated[list[str | bytes], BeforeValidator(_pictures)]


class PictureOptions(TypedDict, total=False):
    """How the models see."""

    mmproj: Annotated[
        FilePath | None,
        opt(
            None,
            "The target's projector (GGUF), with which it reads pictures. A URL is downloaded into duo's cache; "
            "auto: the file with mmproj in its name beside the target's.",
            "-mm",
            "--mmproj",
            env="MMPROJ",
            metavar="FILE|URL|auto",
        ),
    ]
    mmproj_draft: Annotated[
        FilePath | None,
        opt(
            None,
            "The draft's projector, with which it reads the pictures as well. Without one it reads the words alone.",
            "-mmd",
            "--mmproj-draft",
            metavar="FILE|URL|auto",
        ),
    ]
    mmproj_offload: Annotated[
        bool,
        opt(True, "Encode pictures on a GPU, if there is one.", "--mmproj-offload/--no-mmproj-offload",
            env="MMPROJ_OFFLOAD"),
    ]  # fmt: skip
    mmproj_device: Annotated[
        str | None,
        Opt(
            None,
            "Device that encodes pictures; none: the CPU. Default: the first of -dev (the draft's: of -devd), or the "
            "first GPU.",
            ("-mmdev", "--mmproj-device"),
            ("MTMD_BACKEND_DEVICE",),
            "DEVICE",
        ),
    ]
    image_min_tokens: Annotated[
        Rows | None,
        opt(None, "Minimum number of rows of a picture, if the model allows several. Default: as its file says.",
            "--image-min-tokens", env="IMAGE_MIN_TOKENS"),
    ]  # fmt: skip
    image_max_tokens: Annotated[
        Rows | None,
        opt(None, "Maximum number of rows of a picture, if the model allows several. Default: as its file says.",
            "--image-max-tokens", env="IMAGE_MAX_TOKENS"),
    ]  # fmt: skip


class SeenOptions(TypedDict, total=False):
    """What a text is about."""

    images: Annotated[
        Pictures | None,
        opt(
            None,
            "Pictures and sound (WAV, MP3, FLAC) for the prompt. Each takes the place of a <__media__> in it; without "
            "these marks they come before the prompt. May be given several times.",
            "--image",
            "--audio",
            metavar="FILE,FILE",
        ),
    ]
