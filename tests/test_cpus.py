"""How many threads a process may use: made-up /proc and /sys trees, and this machine's own taskset and groups."""

import os
import sys
from pathlib import Path

import pytest
from rights import of_an_ordinary_user

from duo.placement import cpus
from duo.placement.cpus import core_cpus, cpu_quota, omp_limit, usable_cores

V1 = ("4:cpu,cpuacct:{group}\n3:memory:/elsewhere\n", "{id} 1 0:2 {root} {point} rw - cgroup cgroup rw,cpu,cpuacct\n")
V2 = ("0::{group}\n", "{id} 1 0:3 {root} {point} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n")


class Tree:
    """A root folder with one process's view of its control groups."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.put("proc/self/mountinfo", "22 1 0:1 / / rw - ext4 /dev/vda rw\nnonsense\n\n")

    def put(self, path: str, text: str | bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def add(self, kind: tuple[str, str], group: str, point: str, root: str = "/") -> None:
        """A hierarchy, `point` showing its group `root`, and this process in `group`."""
        for name, line in zip(("cgroup", "mountinfo"), kind, strict=True):
            file = f"proc/self/{name}"
            old = (self.root / file).read_text() if (self.root / file).exists() else ""
            self.put(file, old + line.format(group=group, point=point, root=root, id=30 + len(old)))

    def hyper_threads(self, *cores: str) -> None:
        for core in cores:
            for cpu in core.split(","):
                self.put(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{core}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture(autouse=True)
def _no_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def big(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may run on 64 CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)), raising=False)


# ---- limits of time


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("200000 100000\n", 2.0),
        ("250000 100000\n", 2.5),
        ("50000 100000\n", 0.5),
        ("1000 1000000\n", 0.001),
        ("max 100000\n", None),
        ("max\n", None),
        ("", None),
        ("200000\n", None),
        ("200000 0\n", None),
        ("0 100000\n", None),
        ("-1 100000\n", None),
        ("2e5 100000\n", None),
        ("200000 100000 7\n", 2.0),
        ("a b\n", None),
        (b"\xff\xfe 100000\n", None),
        ("9" * 400 + " 1\n", None),
    ],
)
def test_cpu_max(tree: Tree, text: str | bytes, quota: float | None) -> None:
    tree.add(V2, "/a", "/sys/fs/cgroup")
    tree.put("sys/fs/cgroup/a/cpu.max", text)
    assert cpu_quota(tree.root) == quota


@pytest.mark.parametrize(
    ("quota_us", "period_us", "quota"),
    [
        ("200000\n", "100000\n", 2.0),
        ("-1\n", "100000\n", None),
        ("25000\n", "10000\n", 2.5),
        ("5\n", "0\n", None),
        ("", "", None),
    ],
)
def test_cfs_quota(tree: Tree, quota_us: str, period_us: str, quota: float | None) -> None:
    tree.add(V1, "/docker/one", "/sys/fs/cgroup/cpu,cpuacct")
    tree.put("sys/fs/cgroup/cpu,cpuacct/docker/one/cpu.cfs_quota_us", quota_us)
    tree.put("sys/fs/cgroup/cpu,cpuacct/docker/one/cpu.cfs_period_us", period_us)
    assert cpu_quota(tree.root) == quota


@pytest.mark.parametrize("at", ["", "a", "a/b", "a/b/c"])
def test_the_smallest_of_all_ancestors_counts(tree: Tree, at: str) -> None:
    tree.add(V2, "/a/b/c", "/sys/fs/cgroup")
    for group in ("", "a", "a/b", "a/b/c"):
        tree.put(f"sys/fs/cgroup/{group}/cpu.max", "300000 100000" if group == at else "max 100000")
    tree.put("sys/fs/cgroup/x/cpu.max", "100000 100000")  # another's
    assert cpu_quota(tree.root) == 3.0


def test_both_versions_at_once(tree: Tree) -> None:
    """As systemd's hybrid hierarchy has it: groups without the cpu controller, and the controller in version 1."""
    tree.add(V2, "/user.slice/a", "/sys/fs/cgroup/unified")
    tree.add(V1, "/user.slice", "/sys/fs/cgroup/cpu")
    assert cpu_quota(tree.root) is None
    tree.put("sys/fs/cgroup/cpu/user.slice/cpu.cfs_quota_us", "400000")
    tree.put("sys/fs/cgroup/cpu/user.slice/cpu.cfs_period_us", "100000")
    assert cpu_quota(tree.root) == 4.0
    tree.put("sys/fs/cgroup/unified/user.slice/cpu.max", "300000 100000")
    assert cpu_quota(tree.root) == 3.0


def test_a_containers_limit_is_that_of_its_topmost_visible_group(tree: Tree) -> None:
    """Name spaces: the process is in "/", and the mount's root is "/" too."""
    tree.add(V2, "/", "/sys/fs/cgroup")
    tree.put("sys/fs/cgroup/cpu.max", "200000 100000")
    assert cpu_quota(tree.root) == 2.0


@pytest.mark.parametrize(
    ("group", "root", "file"),
    [
        ("/docker/abc", "/docker/abc", ""),  # the host's path, of which the mount shows the end
        ("/docker/abc/job/two", "/docker/abc", "job"),
        ("/", "/docker/abc", ""),  # a mount older than the name space
        ("/../other", "/", ""),  # moved out of the name space: its group cannot be seen
        ("/kubepods/pod1", "/system.slice", ""),
        ("a group", "/", ""),
    ],
)
@pytest.mark.parametrize("version", [V1, V2])
def test_containers_that_see_a_part(tree: Tree, version: tuple[str, str], group: str, root: str, file: str) -> None:
    tree.add(version, group, "/sys/fs/cgroup/cpu", root)
    folder = f"sys/fs/cgroup/cpu/{file}"
    if version is V2:
        tree.put(f"{folder}/cpu.max", "200000 100000")
    else:
        tree.put(f"{folder}/cpu.cfs_quota_us", "200000")
        tree.put(f"{folder}/cpu.cfs_period_us", "100000")
    assert cpu_quota(tree.root) == 2.0


def test_names_with_spaces(tree: Tree) -> None:
    tree.add(V2, "/a b:c", "/sys/fs/c\\040group\\134")
    tree.put("sys/fs/c group\\/a b:c/cpu.max", "200000 100000")
    assert cpu_quota(tree.root) == 2.0


@pytest.mark.parametrize(
    "cgroup", ["", "\n", "0\n", "::\n", "0::\n", ":::::\n", "x:cpu:/\n", "\0", b"\xff:cpu:/\xff\n"]
)
@pytest.mark.parametrize("mounts", [None, "", "\n", " - cgroup2 x rw\n", "1 2 3 / / - cgroup2\n", b"\xff - \xff"])
def test_malformed_cgroup_trees(tree: Tree, cgroup: str | bytes, mounts: str | bytes | None) -> None:
    tree.put("proc/self/cgroup", cgroup)
    if mounts is None:
        (tree.root / "proc/self/mountinfo").unlink()
    else:
        tree.put("proc/self/mountinfo", mounts)
    assert cpu_quota(tree.root) is None


def test_no_files_at_all(tmp_path: Path, big: None) -> None:
    assert cpu_quota(tmp_path) is None
    assert usable_cores(tmp_path) == 64


@pytest.mark.parametrize("what", ["a folder", "a secret"])
def test_files_that_cannot_be_read(tree: Tree, what: str, big: None) -> None:
    tree.add(V2, "/a", "/sys/fs/cgroup")
    tree.put("sys/fs/cgroup/cpu.max", "300000 100000")
    file = tree.root / "sys/fs/cgroup/a/cpu.max"
    if what == "a folder":
        file.mkdir(parents=True)
    else:
        tree.put("sys/fs/cgroup/a/cpu.max", "100000 100000")
        file.chmod(0)
    with of_an_ordinary_user():
        assert usable_cores(tree.root) == 3


# ---- threads


@pytest.mark.parametrize(("quota", "n"), [("max", 64), (6400000, 64), (250000, 2), (200000, 2), (199999, 1), (1000, 1)])
def test_a_quota_is_rounded_down(tree: Tree, big: None, quota: int | str, n: int) -> None:
    tree.add(V2, "/", "/sys/fs/cgroup")
    tree.put("sys/fs/cgroup/cpu.max", f"{quota} 100000")
    assert usable_cores(tree.root) == n


def test_hyper_threads_count_once(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.hyper_threads("0,4", "1,5", "2,6", "3,7")
    for allowed, cores in (
        (range(8), [0, 1, 2, 3]),
        ({1, 5}, [1]),
        ({4, 5, 6, 7}, [4, 5, 6, 7]),
        ({0, 4, 7}, [0, 7]),
        ({0, 1, 9, 10}, [0, 1, 9, 10]),  # the last two tell nothing of themselves
    ):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid, a=allowed: set(a), raising=False)
        assert core_cpus(tree.root) == cores
        assert usable_cores(tree.root) == len(cores)


@pytest.mark.parametrize(
    ("threads", "limit", "n"),
    [
        ("3", "", 3),
        ("3,2,1", "", 3),
        (" 3 , 2", "", 3),
        ("", "5", 5),
        ("8", "5", 5),
        ("4", "5", 4),
        ("0", "", None),
        ("-2", "", None),
        ("many", "", None),
        (",4", "", None),
        ("3.5", "1e1", None),
        ("9" * 30, "", None),
    ],
)
def test_openmps_variables(tmp_path: Path, big: None, monkeypatch: pytest.MonkeyPatch,
                           threads: str, limit: str, n: int | None) -> None:  # fmt: skip
    assert omp_limit({"OMP_NUM_THREADS": threads, "OMP_THREAD_LIMIT": limit}) == n
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setenv("OMP_THREAD_LIMIT", limit)
    assert usable_cores(tmp_path) == (n or 64)


def test_openmp_variables_cannot_raise_the_number_of_cores(
    tmp_path: Path, big: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "100")
    assert usable_cores(tmp_path) == 64


@pytest.mark.parametrize("count", [6, None])
def test_elsewhere_the_processors_are_counted(
    count: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    monkeypatch.setattr(sys, "platform", "win32")
    assert core_cpus(tmp_path) == list(range(count or 1))
    assert usable_cores(tmp_path) == (count or 1)


@pytest.mark.parametrize(
    ("known", "n"),
    [({b"hw.perflevel0.physicalcpu": 4, b"hw.physicalcpu": 8}, 4), ({b"hw.physicalcpu": 8}, 8), ({}, 16)],
)
def test_a_macs_performance_cores(
    known: dict[bytes, int], n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Libc:
        @staticmethod
        def sysctlbyname(name: bytes, value: "cpus.ctypes._SimpleCData[int]", *_: object) -> int:
            if name not in known:
                return -1
            value._obj.value = known[name]  # type: ignore[attr-defined]  # of ctypes.byref
            return 0

    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(cpus.ctypes, "CDLL", lambda _name: Libc)
    assert usable_cores(tmp_path) == n


def test_efficiency_cores_count_only_where_there_are_no_others(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.hyper_threads("0,1", "2,3", "4", "5", "6")
    tree.put("sys/devices/cpu_core/cpus", "0-3\n")
    tree.put("sys/devices/cpu_atom/cpus", "4-5\n")
    tree.put("sys/devices/cpu_lowpower/cpus", "6\n")
    for allowed, cores in ((range(7), [0, 2]), ({3, 4}, [3]), ({4, 6}, [4, 6])):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid, a=allowed: set(a), raising=False)
        assert core_cpus(tree.root) == cores
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(7)), raising=False)
    for text in ("\n", "none\n"):
        tree.put("sys/devices/cpu_atom/cpus", text)
        assert core_cpus(tree.root) == core_cpus(tree.root, slow=True)[:-1] == [0, 2, 4, 5]


def test_a_team_is_no_larger_than_ggml_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(600)), raising=False)
    assert usable_cores(tmp_path) == 512
