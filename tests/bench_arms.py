"""Arms that the tests of duo bench compare."""

from duo.benchmark.bench.arms import Arm

SYNC2, SYNC4, AUTO = Arm("sync 2", "sync", 2), Arm("sync 4", "sync", 4), Arm("async auto", "async", "auto")
