"""Shows the progress of `pip install -v` as one line and keeps the whole output in a log file.

    pip install -v ... 2>&1 | python3 tools/build_progress.py LOG TITLE

Standard library only: it runs before anything is installed. The exit code is pip's: pip's last line tells.
"""

import re
import sys
import time


def main() -> int:
    log_path, title = sys.argv[1], sys.argv[2]
    tty = sys.stderr.isatty()
    start, shown, failed, tail = time.monotonic(), -1, False, []
    with open(log_path, "w", encoding="utf-8", errors="replace") as log:
        for line in sys.stdin.buffer:
            text = line.decode("utf-8", "replace")
            log.write(text)
            tail = [*tail[-40:], text]
            failed = failed or text.lstrip().startswith(("ERROR:", "error: "))
            step = re.match(r"\s*\[(\d+)/(\d+)\]", text)
            if step is None:
                continue
            done, total = int(step[1]), int(step[2])
            percent = 100 * done // total
            if tty or percent >= shown + 10:
                shown = percent
                message = f"{title}: {done}/{total} files, {time.monotonic() - start:.0f} s"
                sys.stderr.write(f"\r{message}   " if tty else message + "\n")
                sys.stderr.flush()
    end = "failed" if failed else "done"
    sys.stderr.write(f"{chr(13) if tty else ''}{title}: {end}, {time.monotonic() - start:.0f} s (log: {log_path})\n")
    if failed:
        sys.stderr.write("".join(tail))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
