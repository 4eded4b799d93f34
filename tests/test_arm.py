"""ARM: the kernels under emulation, where a cross compiler and an emulator are at hand; the processor's name."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from needs import need_program

from duo.placement.kernels import processor

ROOT = Path(__file__).parents[1]
TOOLS = ("aarch64-linux-gnu-g++", "qemu-aarch64-static")
A76 = """\
processor\t: 0
BogoMIPS\t: 243.75
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd0b
"""


@pytest.mark.proof  # minutes; CI runs make test-arm-kernels itself
@pytest.mark.skipif(not (Path(sys.prefix) / "tools").exists(), reason="not in the environment that make sets up")
@pytest.mark.timeout(1800)  # compiles for a minute of processor time and emulates for another
def test_kernels_give_the_right_bits_on_emulated_processors() -> None:
    for tool in TOOLS:
        need_program("arm", tool)
    make = ["make", "-s", "-C", str(ROOT), f"VENV={os.path.relpath(sys.prefix, ROOT)}", "test-arm-kernels"]
    outer = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "DUO_CPU_ISA"))}
    made = subprocess.run(make, capture_output=True, text=True, env=outer)
    assert made.returncode == 0, made.stdout[-5000:] + made.stderr[-5000:]
    for test in ("cortex-a53", "cortex-a76", "max", "attention"):
        assert re.search(rf"kernels\.{test} \.+ +Passed", made.stdout), made.stdout


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor : 0\nmodel name\t: AMD EPYC 9R45\n\nprocessor : 1\nmodel name\t: AMD EPYC 9R45\n", "AMD EPYC 9R45"),
        (A76, "ARM 0x41 0xd0b"),
        (A76 + A76.replace("0xd0b", "0xd05") + A76, "ARM 0x41 0xd05, 0x41 0xd0b"),
    ],
)
def test_processor(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert processor(tmp_path / "cpuinfo") == name


def test_a_processor_without_a_name_has_some(tmp_path: Path) -> None:
    assert processor(tmp_path / "missing")
