"""A host in a child process: it ends with its parent, and its exit code says whether starting it again can help."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

FOLDER_PREFIX = "duo-child-"
WITH_PARENT = "--end-with-parent"
HOPELESS = 3  # exit code: starting again cannot help until somebody changes a file, a device or an option


def end_with_parent(path: str) -> None:
    """Called in the child, which listens on the socket `path`: ends this process when its standard input ends.

    Only the parent holds the other end. Removes the folder of the socket, which a killed parent could not remove.
    """

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 1):
                pass
        folder = Path(path).parent
        if folder.name.startswith(FOLDER_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    threading.Thread(target=watch, daemon=True, name="duo-with-parent").start()
