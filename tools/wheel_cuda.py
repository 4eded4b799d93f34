"""What ggml-cuda is compiled with: NVIDIA's compiler, headers and libraries, from the package index.

Their release is the first one of CUDA 13, because the plugin has PTX, which drivers of that release or a later one
compile. cuBLAS, which takes several hundred megabytes, is not inside a wheel: an extra of the wheel needs its package.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from wheel_programs import BUILD, run
from wheel_target import OWN, Target

RELEASE = "13.0"
PACKAGES = ("cuda-nvcc", "nvvm", "cuda-crt", "cuda-cccl", "cuda-runtime", "cublas")
CUBLAS = "nvidia-cublas>=13.0,<14"
DRIVER = "libcuda.so.1"  # never inside a wheel: it belongs to the driver of a machine
OUTSIDE = (DRIVER, "libcublas.so.13", "libcublasLt.so.13")  # the last two come with the package nvidia-cublas


def _toolkit(target: Target) -> Path:
    """The packages in a folder of their own, and a driver's library to link with."""
    folder = BUILD / "cuda"
    toolkit = folder / "nvidia" / "cu13"
    stubs = toolkit / "lib" / "stubs"
    if (stubs / "libcuda.so").exists():
        return toolkit
    shutil.rmtree(folder, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--no-compile"]
    run(*pip, "--target", folder, *(f"nvidia-{name}=={RELEASE}.*" for name in PACKAGES))
    (toolkit / "lib64").symlink_to("lib")  # where nvcc looks
    for library in ("cudart", "cublas", "cublasLt"):
        (toolkit / "lib" / f"lib{library}.so").symlink_to(f"lib{library}.so.13")
    stubs.mkdir()
    linker = [f"{target.compilers}gcc", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{DRIVER}"]
    run(*linker, OWN / "libcuda.c", "-o", stubs / "libcuda.so")
    return toolkit


def cuda_arguments(target: Target, wanted: bool) -> list[str]:
    """For CMake."""
    if not wanted:
        return ["-DDUO_CUDA=OFF"]
    if target.is_foreign:
        raise SystemExit(f"make_wheel: a wheel for {target.machine} has no CUDA; leave out --cuda")
    toolkit = _toolkit(target)
    compilers = {"COMPILER": toolkit / "bin" / "nvcc", "HOST_COMPILER": f"{target.compilers}g++"}
    return ["-DDUO_CUDA=ON", *(f"-DCMAKE_CUDA_{name}={program}" for name, program in compilers.items())]


def runtime_license() -> Path:
    """That of CUDA's runtime, which is linked into the plugin."""
    (file,) = (BUILD / "cuda").glob("nvidia_cuda_runtime-*.dist-info/licenses/License.txt")
    return file
