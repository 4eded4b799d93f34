"""What control groups leave a process of memory: made-up /proc and /sys trees."""

from pathlib import Path

import pytest

from duo import _core

V2 = ("sys/fs/cgroup", "", "memory.max", "memory.current", "file", "shmem")
V1 = ("sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "total_shmem")


@pytest.mark.parametrize("version", [V2, V1], ids=["version 2", "version 1"])
def test_shared_memory_cannot_be_reclaimed(version: tuple[str, ...], tmp_path: Path) -> None:
    place, controller, limit, used, pages, shared = version
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 1000000 kB\n")
    (tmp_path / "proc/self/cgroup").write_text(f"0:{controller}:/a\n")
    group = tmp_path / place / "a"
    group.mkdir(parents=True)
    for name, text in ((limit, "9000\n"), (used, "5000\n"), ("memory.stat", f"{pages} 3000\n{shared} 2500\n")):
        (group / name).write_text(text)
    assert _core.memory_available(str(tmp_path)) == 9000 - (5000 - (3000 - 2500))
    (group / "memory.stat").write_text(f"{pages} 3000\n")
    assert _core.memory_available(str(tmp_path)) == 9000 - (5000 - 3000)
