"""How much memory packed weights take, and what happens if there is too little of it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.control_group import ControlGroup, NoControlGroupError
from conftest import needs_kernels, run_python
from model_files import CHILD, Shape, random_model
from waits import in_time

from duo import _core
from duo.placement import packed, packed_writer
from duo.placement.packing import NONE

pytestmark = [needs_kernels, pytest.mark.full]


@pytest.fixture(scope="session")
def large_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So large (200 MB) that a second copy of its weights cannot hide."""
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    return random_model(path, "llama", "f16", Shape(n_embd=2048, n_ff=5120, n_head=16))


@contextmanager
def limited_group(n_bytes: int) -> Iterator[ControlGroup]:
    """A control group with so much memory. The test is skipped if none can be made."""
    try:
        group = ControlGroup(f"duo-test-{os.getpid()}")
    except NoControlGroupError as e:
        pytest.skip(str(e))
    with group:
        try:
            group.limit_memory(n_bytes)
        except NoControlGroupError as e:
            pytest.skip(str(e))
        yield group


counts_memory = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="Linux alone limits and counts memory so"
)

NO_MEMORY = """
import resource
before = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData:")][0] << 10
resource.setrlimit(resource.RLIMIT_DATA, (before + int(sys.argv[2]),) * 2)  # a mapped file does not count
o = _core.EngineOptions()
o.target = options(sys.argv[1])
engine = _core.Engine(o)
target = engine.target
print(target.n_duo_products, target.same_bits, target.warning)
"""


@pytest.mark.daily
@counts_memory
def test_stock_kernels_are_used_if_memory_for_packed_weights_is_short(large_model: Path) -> None:
    child = run_python(CHILD + NO_MEMORY, large_model, str(int(0.6 * large_model.stat().st_size)))
    assert child.returncode == 0, child.stderr
    assert child.stdout.startswith("0 False there is not enough memory for duo's CPU kernels to pack the weights of ")


@pytest.mark.daily  # test_packed has files, and a test below counts the memory of weights
@counts_memory
def test_weights_of_a_packed_file_need_no_memory(large_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "packed"
    packed_writer.pack(str(large_model), file, NONE, 1)
    choice = f"o.target.packed = (os.fsencode({str(file)!r}), {packed.source_of(str(large_model))!r}, True)\nengine ="
    child = run_python(
        CHILD + NO_MEMORY.replace("engine =", choice), large_model, str(int(0.6 * large_model.stat().st_size))
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.split()[:2] == ["15", "True"]


@pytest.mark.daily
@counts_memory
@pytest.mark.skipif(not _core.extra_buffers(), reason="stock kernels pack no weights here")
def test_stock_kernels_use_the_files_weights_if_memory_for_packed_ones_is_short(tmp_path: Path) -> None:
    path = random_model(tmp_path / "large.gguf", "llama", "q4_0", Shape(n_embd=2048, n_ff=5120, n_layer=5, n_head=16))
    stock = NO_MEMORY.replace("options(sys.argv[1])", "options(sys.argv[1], ())")
    child = run_python(CHILD + stock, path, str(int(0.85 * path.stat().st_size)))  # enough for the context
    assert child.returncode == 0, child.stderr
    assert child.stdout.startswith("0 False there is not enough memory for stock CPU kernels to pack the weights of ")


MEMORY = """
def private_bytes():
    rows = [line.split() for line in open("/proc/self/smaps_rollup")]
    return sum(int(r[1]) for r in rows if r[0] in ("Private_Clean:", "Private_Dirty:")) << 10

p = _core.Probe(options(sys.argv[2]))
run(p, 8)
del p
before = private_bytes()
p = _core.Probe(options(sys.argv[1]))
assert p.n_duo_products == p.n_cpu_products
run(p, 8)
print(private_bytes() - before)
del p
print(private_bytes() - before)
"""


@counts_memory
def test_weights_lie_in_memory_once_and_are_given_back(large_model: Path, tmp_path: Path) -> None:
    child = run_python(CHILD + MEMORY, large_model, random_model(tmp_path / "small.gguf", "llama", "f16"))
    assert child.returncode == 0, child.stderr
    loaded, closed = map(int, child.stdout.split())
    size = large_model.stat().st_size
    assert 0.9 * size < loaded < 1.1 * size + (64 << 20)
    assert closed < 64 << 20


# Says when it is in the middle of a text, and goes on after a line; then whether the text is the one from before.
PAUSED = """
import sys, duo
seen = []
def pause(ids, scores):
    seen.append(1)
    if len(seen) == 12:
        print("paused", flush=True)
        input()
    return scores
with duo.Duo(sys.argv[1], packed=sys.argv[2], n_ctx=256, cpu_kernels="duo") as d:
    def write():
        how = dict(max_tokens=8, temperature=0, ignore_eos=True, cache_prompt=False, logits_processor=pause)
        return d.generate("Once upon a time", **how).tokens
    print(write() == write(), d.engine.target.packed_file == sys.argv[2])
"""


@pytest.mark.daily
@counts_memory
def test_a_text_goes_on_when_the_memory_limit_falls(large_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "packed"
    n_bytes = packed_writer.pack(str(large_model), file, NONE, 1)
    with file.open("rb") as f:  # so that its pages count for the group that reads them
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with limited_group(1 << 40) as group:
        command = group.inside(sys.executable, "-c", PAUSED, large_model, file)
        with (
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child,
            in_time(child),
        ):
            assert child.stdin and child.stdout and child.stdout.readline() == "paused\n"
            assert group.n_used - group.n_own > 0.9 * n_bytes  # the file
            limit = group.n_own + n_bytes // 2
            group.limit_memory(limit)
            assert group.n_used <= limit
            assert child.communicate("\n")[0] == "True True\n"
            assert child.returncode == 0


MAPPED = """
import sys, duo
with duo.Duo(sys.argv[1], load_mode="mmap", packed="off", cpu_kernels="duo", n_ctx=256, n_threads=1) as d:
    print(d.engine.target.n_duo_products, d.engine.target.warning)
"""


@pytest.mark.daily
@counts_memory
def test_a_mapped_model_that_memory_cannot_hold_is_not_packed(large_model: Path) -> None:
    with limited_group(int(0.8 * large_model.stat().st_size)) as group:
        command = group.inside(sys.executable, "-c", MAPPED, large_model)
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        assert child.returncode == 0, child.stderr
        assert child.stdout.startswith("0 there is not enough memory for duo's CPU kernels to pack the weights of ")
