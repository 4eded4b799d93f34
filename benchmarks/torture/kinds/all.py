"""The kinds of faults."""

from __future__ import annotations

from benchmarks.torture.kind import Kind
from benchmarks.torture.kinds.cancel import Cancel
from benchmarks.torture.kinds.close import Close
from benchmarks.torture.kinds.damaged import Damaged
from benchmarks.torture.kinds.disk import Disk
from benchmarks.torture.kinds.download import Downloads
from benchmarks.torture.kinds.draft_host import DraftHosts
from benchmarks.torture.kinds.memory import Memory
from benchmarks.torture.kinds.program import Program
from benchmarks.torture.kinds.rpc import Rpc
from benchmarks.torture.kinds.serve import Clients, Servers
from benchmarks.torture.kinds.verify_host import VerifyHosts

KINDS: tuple[type[Kind], ...] = (
    Cancel, Close, Program, DraftHosts, VerifyHosts, Rpc, Servers, Clients, Disk, Memory, Damaged, Downloads,
)  # fmt: skip
