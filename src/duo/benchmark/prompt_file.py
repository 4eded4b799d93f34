"""Files with one prompt on each line."""

from __future__ import annotations

from pathlib import Path

from duo.errors import BadValueError
from duo.generation.job import check_text
from duo.support.text_file import text_of


def prompt_lines(path: Path) -> list[str]:
    """The lines without blank ones. Raises BadValueError: the file cannot be read, or has no prompt or a bad one."""
    prompts = [line.strip() for line in text_of(path, "prompt file").split("\n") if line.strip()]
    if not prompts:
        raise BadValueError(f"the prompt file {path} has no prompt; write one per line")
    for n, prompt in enumerate(prompts, 1):
        check_text(prompt, f"prompt {n} in {path}")
    return prompts
