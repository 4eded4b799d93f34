"""Runs a verbose build and shows its progress as one line; the whole output goes to a log file.

    python3 tools/build_progress.py LOG TITLE COMMAND...

Standard library only: it runs before anything is installed. The exit code is the command's.
"""

import re
import subprocess
import sys
import time


def main() -> int:
    log_path, title, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    tty = sys.stderr.isatty()
    start, shown, tail, most = time.monotonic(), -1, [], 0
    with (
        open(log_path, "w", encoding="utf-8", errors="replace") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as build,
    ):
        assert build.stdout is not None
        for line in build.stdout:
            text = line.decode("utf-8", "replace")
            log.write(text)
            tail = [*tail[-40:], text]
            step = re.match(r"\s*\[(\d+)/(\d+)\]", text)  # ninja's count
            if step is None:
                continue
            done, total = int(step[1]), int(step[2])
            if total < most:
                continue  # a build inside the build
            most = total
            percent = 100 * done // total
            if tty or percent >= shown + 10:
                shown = percent
                message = f"{title}: {done}/{total} files, {time.monotonic() - start:.0f} s"
                sys.stderr.write(f"\r{message}   " if tty else message + "\n")
                sys.stderr.flush()
    end = "done" if build.returncode == 0 else f"failed (exit code {build.returncode})"
    sys.stderr.write(f"{chr(13) if tty else ''}{title}: {end}, {time.monotonic() - start:.0f} s (log: {log_path})\n")
    if build.returncode != 0:
        sys.stderr.write("".join(tail))
    return build.returncode


if __name__ == "__main__":
    sys.exit(main())
