"""Prints the CMAKE_ARGS for building llama-cpp-python with the Vulkan backend on this machine.

    CMAKE_ARGS="$(python3 tools/vulkan_args.py build/vulkan-headers)" pip install .

ggml-vulkan needs Vulkan's headers of 1.3.272 or later (VK_EXT_layer_settings). Where the installed ones are older, a
Debian machine downloads those of a later release and unpacks them into the given folder; nothing is installed.
Standard library only: it runs before anything is installed. Exit code 1, with a sentence, if something is missing.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

BACKENDS = "-DGGML_VULKAN=on -DGGML_RPC=on"
NEEDED = (1, 3, 272)
LATER_RELEASE = "trixie"
PACKAGES = ("libvulkan-dev", "spirv-headers")
INSTALL = "apt-get install mesa-vulkan-drivers libvulkan-dev glslc spirv-headers"


class MissingError(Exception):
    """What is missing, and what to do about it."""


def version(include: Path) -> tuple[int, ...]:
    """The version of the Vulkan headers in a folder; (0,): there are none."""
    header = include / "vulkan" / "vulkan_core.h"
    if not header.is_file():
        return (0,)
    text = header.read_text(encoding="utf-8", errors="replace")
    patch = re.search(r"#define VK_HEADER_VERSION (\d+)", text)
    release = re.search(r"#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION\(0, (\d+), (\d+),", text)
    return (int(release[1]), int(release[2]), int(patch[1])) if patch and release else (0,)


def installed() -> Path:
    sdk = os.environ.get("VULKAN_SDK")
    return Path(sdk, "include") if sdk else Path("/usr/include")


def archive() -> str:
    """The address of this machine's Debian archive, from apt's own list."""
    form = "$(REPO_URI)|$(CODENAME)|$(COMPONENT)|$(ORIGIN)"
    command = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    listed = (
        subprocess.run(command, capture_output=True, text=True, check=False).stdout if shutil.which("apt-get") else ""
    )
    release = re.search(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    for line in listed.splitlines():
        address, codename, component, origin = line.split("|")
        if release and codename == release[1] and component == "main" and origin == "Debian":
            return address
    raise MissingError(
        f"the Vulkan headers are older than {'.'.join(map(str, NEEDED))}; install a Vulkan SDK and set VULKAN_SDK"
    )


def unpack_later(into: Path) -> None:
    """Downloads the packages of a later Debian release, with a list and a state of their own, and unpacks them."""
    apt = into.resolve() / "apt"
    for name in ("state/lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (apt / "sources.list").write_text(f"deb [signed-by={keys}] {archive()} {LATER_RELEASE} main\n")
    (apt / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{apt}/sources.list";\nDir::Etc::SourceParts "/dev/null";\n'
        f'Dir::State "{apt}/state";\nDir::Cache "{apt}/cache";\nAPT::Sandbox::User "root";\n'
    )
    environment = os.environ | {"APT_CONFIG": str(apt / "apt.conf")}
    for command in (["apt-get", "update"], ["apt-get", "download", *PACKAGES]):
        done = subprocess.run(command, cwd=apt, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingError(
                f"{' '.join(command)} of Debian {LATER_RELEASE} failed: {done.stderr.strip().splitlines()[-1]}"
            )
    for package in sorted(apt.glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, into], check=True)


def cmake_args(folder: Path) -> str:
    if shutil.which("glslc") is None:
        raise MissingError(f"the compiler of shaders, glslc, is not installed; {INSTALL}")
    include = installed()
    if version(include) >= NEEDED:
        return BACKENDS
    if version(include) == (0,):
        raise MissingError(f"the Vulkan headers are not installed; {INSTALL}")
    root = folder.resolve() / "usr"
    if version(root / "include") < NEEDED:
        unpack_later(folder)
    # Not CMAKE_PREFIX_PATH, which scikit-build-core sets for pybind11.
    spirv = root / "share" / "cmake" / "SPIRV-Headers"
    return f"{BACKENDS} {shlex.join((f'-DVulkan_INCLUDE_DIR={root}/include', f'-DSPIRV-Headers_DIR={spirv}'))}"


def main() -> int:
    try:
        print(cmake_args(Path(sys.argv[1])))
    except MissingError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
