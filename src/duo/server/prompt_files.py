"""Files of the prompts that clients send, to find out what they send (--log-prompts-dir)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from duo.errors import BadValueError

if TYPE_CHECKING:
    from duo.server.text import ServedText


def made_folder(path: str | None) -> Path | None:
    """Makes the folder where it is missing, for this user alone. Raises BadValueError."""
    if path is None:
        return None
    try:
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise BadValueError(
            f"the folder {path} (--log-prompts-dir) cannot be made ({e.strerror}); choose another"
        ) from None
    return Path(path)


def keep_prompts(folder: Path, texts: Sequence[ServedText]) -> None:
    """Writes the prompts of a request to a new file, which only this user can read. Its name is the time in
    milliseconds, as llama-server's. One prompt is there as the text, or as its ids if that is what came; several are a
    JSON list. Raises OSError."""
    by_tokens = {id(t.job.tokens): t.prompt or list(t.job.tokens) for t in texts}  # n choices share one prompt
    prompts = list(by_tokens.values())
    one = prompts[0] if len(prompts) == 1 else prompts
    words = one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
    name = time.time_ns() // 1_000_000
    while True:
        try:
            file = os.open(folder / f"{name:012}.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            break
        except FileExistsError:  # another request of the same millisecond
            name += 1
    with open(file, "w", encoding="utf-8", errors="surrogatepass") as out:
        out.write(words)
