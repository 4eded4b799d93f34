"""The wheel for 64-bit ARM, with a Debian's Python on an emulated processor."""

from collections.abc import Iterator

import pytest
from arm_debian import ArmDebian
from wheels import found

from duo import Duo
from duo.models.demo import demo_pair
from duo.placement import kernels

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(1800)]

PROMPT = "Once upon a time there was a little tin soldier"
WRITE = """
import duo, sys
from duo.models.demo import demo_pair
with duo.Duo(*demo_pair(), n_ctx=256, cpu_kernels="duo", n_threads=2) as d:
    for mode in ("plain", "sync"):
        print(repr(d.generate(sys.argv[1], mode=mode, max_tokens=12, temperature=0).text))
"""
CHOSEN = """
from duo import _core
from duo.placement import guard
print(*(p.stem.removeprefix("libggml-cpu-") for p in guard.libraries()), _core.kernels()[0] or "stock")
"""


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArmDebian]:
    made = [w for w in found("aarch64") if "-cp311-" in w.name]
    if not made:
        pytest.skip("no wheel for 64-bit ARM and CPython 3.11 (make wheel-arm)")
    yield ArmDebian(tmp_path_factory.mktemp("arm"), made[0])


def test_the_program_starts(arm: ArmDebian) -> None:
    version = arm.run("-m", "duo", "--version")
    assert version.startswith("duo ")
    assert "CPU kernels: duo (neon_dot)" in arm.run("-m", "duo", "devices", processor="cortex-a76")


@pytest.mark.skipif(not kernels.available(), reason="no instruction set that duo has kernels for")
def test_the_text_is_that_of_this_machine(arm: ArmDebian) -> None:
    """duo's kernels give the same bits on all processors."""
    with Duo(*demo_pair(), n_ctx=256, cpu_kernels="duo") as d:
        text = d.generate(PROMPT, mode="plain", max_tokens=12, temperature=0).text
    assert arm.run("-c", WRITE, PROMPT, processor="cortex-a76").splitlines() == 2 * [repr(text)]


def test_code_is_chosen_for_the_processor(arm: ArmDebian) -> None:
    for processor, code, kinds in (
        ("cortex-a53", "armv8.0_1", "stock"),
        ("cortex-a76", "armv8.2_2", "neon_dot"),
        ("max", "armv8.6_2", "neon_i8mm"),
    ):
        assert arm.run("-c", CHOSEN, processor=processor).split() == [code, kinds]


def test_the_kernels_pass_the_doctor(arm: ArmDebian) -> None:
    said = arm.run("-m", "duo", "doctor", "-t", "2", processor="cortex-a76")
    assert "duo's neon_dot kernels: work" in said
    assert "equal" in said
