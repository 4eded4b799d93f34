"""What ggml-vulkan is compiled with: a compiler of shaders and Vulkan's headers.

Those of a stable Debian are too old: the headers lack VK_EXT_layer_settings, and the compiler lacks the extensions for
cooperative matrices, integer products and BF16. So they are those of a later release, which also brings the libraries
that its compiler needs; nothing is installed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from wheel_programs import BUILD, unpack_debian
from wheel_target import Target

LATER_DEBIAN = "trixie"
LOADER = "libvulkan.so.1"  # never inside a wheel: it belongs to the drivers of a machine


def _unpacked() -> Path:
    folder = BUILD / "vulkan"
    compiler, include = folder / "glslc", folder / "include"
    if compiler.exists():
        return folder
    unpack_debian(LATER_DEBIAN, "amd64", "glslc,libvulkan-dev,spirv-headers", folder)
    include.mkdir()  # without the headers of a later glibc
    for name in ("vulkan", "vk_video", "spirv"):
        (include / name).symlink_to(Path("..", "usr", "include", name))
    libraries = folder / "usr" / "lib" / "x86_64-linux-gnu"
    command = [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries, folder / "usr" / "bin" / "glslc"]
    compiler.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
    compiler.chmod(0o755)
    return folder


def vulkan_arguments(target: Target, wanted: bool) -> list[str]:
    """For CMake."""
    if not wanted:
        return ["-DDUO_VULKAN=OFF"]
    folder = _unpacked()
    return [
        "-DDUO_VULKAN=ON",
        f"-DVulkan_INCLUDE_DIR={folder / 'include'}",
        f"-DVulkan_LIBRARY={target.libraries / LOADER}",
        f"-DVulkan_GLSLC_EXECUTABLE={folder / 'glslc'}",
        f"-DSPIRV-Headers_DIR={folder / 'usr' / 'share' / 'cmake' / 'SPIRV-Headers'}",
    ]
