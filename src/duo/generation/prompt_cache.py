"""A file that keeps the models' caches of a prompt, so that a later run need not evaluate it (llama.cpp's
--prompt-cache)."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING

from duo import _core
from duo.errors import CancelledError, DuoError
from duo.generation import state
from duo.generation.errand import finish, read_ahead
from duo.generation.session import EngineSession
from duo.support.same import n_same
from duo.support.wording import gigabytes, one_line

if TYPE_CHECKING:
    from duo.generation.job import Job


class PromptCache:
    """The file of one text. A failure is a `warning`, and the text goes on. Call `before` and `after` in its turn."""

    def __init__(self, session: EngineSession, job: Job) -> None:
        o = job.options
        self._session, self._tokens = session, job.tokens
        self._path = Path(o["prompt_cache"] or "")
        self._all, self._read_only = o["prompt_cache_all"], o["prompt_cache_ro"]
        target = session.engine.target
        self._scales = o["lora_scales"] or session.engine.lora_scales
        self._keeps_state = target is not None and not target.can_rollback  # only a whole text can be restored
        self._n_file = 0  # leading tokens of the prompt that need not be saved again
        self.notes: list[str] = []  # what was read and written, for the user
        self.warning = ""

    # ---- before the text

    def before(self) -> None:
        """Reads the file, if it has more of the prompt than the models' caches have. Raises CancelledError."""
        try:
            self._read()
        except CancelledError:
            raise
        except state.BadStateError as e:
            self._read_only = self._read_only or e.foreign  # somebody else's file stays
            self._warn(str(e) + ("; it stays as it is" if e.foreign else ""))
        except (OSError, MemoryError, DuoError) as e:
            self._warn(f"could not be read ({one_line(e)})")
        if self._keeps_state and not self._read_only and self._n_file < len(self._tokens) - 1:
            self._write(-1)

    def _read(self) -> None:
        if not self._path.exists():
            return
        if not self._path.is_file():
            raise state.BadStateError("is not a file", foreign=True)
        n_bytes = self._path.stat().st_size
        if n_bytes == 0:
            return
        with self._path.open("rb") as file:
            heads = state.read_heads(file, n_bytes)
            state.check_target(self._session, heads[0])
            if not _same_scales(heads[0].lora_scales, self._scales):
                self.notes.append(f"{self._path} was not read, because it was made with other LoRA scales")
                return
            n_file = n_same(heads[0].tokens, self._tokens)
            if self._keeps_state and (n_file < len(heads[0].tokens) or n_file == len(self._tokens)):
                return
            here = finish(self._session, _core.Errand("look"), self._tokens).target_tokens
            if n_file > n_same(here, self._tokens):
                state.restore(self._session, state.read_caches(file, heads))
                self.notes.append(
                    f"{n_file} of the prompt's {len(self._tokens)} tokens were read from {self._path} "
                    f"({gigabytes(n_bytes)})"
                )
            self._n_file = n_file

    # ---- after it

    def after(self, n_generated: int, *, shifted: bool) -> None:
        """Writes the file, if the prompt has more than the file, or if the text is to be kept as well. shifted: the
        context was, so the caches hold less."""
        if shifted and not self._read_only:
            self._warn("was not written, because the context was shifted")
            return
        if self._read_only or (not self._all and (self._keeps_state or self._n_file >= len(self._tokens) - 1)):
            return
        self._write(len(self._tokens) + (n_generated if self._all else 0))

    def _write(self, n_keep: int) -> None:
        """n_keep: tokens to keep; -1: the prompt, which is evaluated first."""
        try:
            if n_keep < 0:
                read_ahead(self._session, self._tokens)
            errand, heads = state.save(self._session, n_keep, self._tokens)
            n_here = n_same(heads[0].tokens, self._tokens)
            if n_here < min(len(self._tokens), len(heads[0].tokens)):
                raise DuoError("other texts took its place in the cache")
            if len(heads[0].tokens) <= self._n_file:  # cancelled before it had read more
                return
            n_bytes = state.write(self._path, errand, heads)
        except CancelledError:
            raise
        except (OSError, MemoryError, DuoError) as e:
            why = e.strerror if isinstance(e, OSError) and e.strerror else one_line(e)
            self._warn(f"could not be written ({why})")
            return
        self._n_file = n_same(heads[0].tokens, self._tokens)
        self.notes.append(f"{len(heads[0].tokens)} tokens were written to {self._path} ({gigabytes(n_bytes)})")

    def _warn(self, why: str) -> None:
        self.warning = f"the prompt cache {self._path} {why}; the text does not depend on it"


def _same_scales(saved: Sequence[float], asked: Sequence[float]) -> bool:
    """The core keeps them with single precision."""
    return len(saved) == len(asked) and all(isclose(a, b, rel_tol=1e-6) for a, b in zip(saved, asked, strict=True))


def open_cache(session: EngineSession, job: Job) -> PromptCache | None:
    """Reads the text's prompt cache; None: it has none. Call it in the text's turn. Raises CancelledError."""
    if job.options["prompt_cache"] is None:
        return None
    cache = PromptCache(session, job)
    cache.before()
    return cache
