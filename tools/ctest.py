"""Runs ctest and prints the tests that took longest: python tools/ctest.py CTEST ARGUMENTS..."""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

N_SHOWN = 8


def slowest(report: Path) -> list[tuple[float, str]]:
    """(seconds, name) of a JUnit report, the slowest first."""
    times = [(float(case.get("time", 0)), case.get("name", "")) for case in ET.parse(report).iter("testcase")]
    return sorted(times, reverse=True)[:N_SHOWN]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        status = subprocess.run([*sys.argv[1:], "--output-junit", str(report)]).returncode
        if report.exists():
            print("Slowest: " + ", ".join(f"{name} {seconds:.1f} s" for seconds, name in slowest(report)))
    return status


if __name__ == "__main__":
    sys.exit(main())
