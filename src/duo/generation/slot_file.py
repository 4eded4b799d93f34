"""What a slot of the caches holds, as a file: of the target, and of the draft or a head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from duo import _core
from duo.errors import BadValueError
from duo.generation import state
from duo.generation.errand import finish, turn

if TYPE_CHECKING:
    from duo.generation.session import EngineSession


def save(session: EngineSession, slot: int, path: Path) -> tuple[int, int]:
    """Replaces the file; returns its tokens and bytes. Waits until no text is written.

    Raises BadValueError (the target is on another machine), OSError, BusyError, CancelledError, DuoError.
    """
    session.belongings  # noqa: B018 - raises BadValueError before anything waits
    with turn(session):
        errand, heads = state.save(session, slot=slot)
        return len(heads[0].tokens), state.write(path, errand, heads)


def restore(session: EngineSession, slot: int, path: Path) -> tuple[int, int]:
    """Puts what the file holds into the slot; returns its tokens and bytes. Waits until no text is written.

    Raises BadValueError (there is no such file, it is damaged, or another model's), OSError, BusyError,
    CancelledError, DuoError.
    """
    session.belongings  # noqa: B018
    if not path.is_file():
        raise BadValueError(f"there is no file {path.name}; save a slot under that name first")
    n_bytes = path.stat().st_size
    with turn(session), path.open("rb") as file:
        try:
            heads = state.read_heads(file, n_bytes)
            state.check_target(session, heads[0])
            state.restore(session, state.read_caches(file, heads), slot)
        except state.BadStateError as e:
            raise BadValueError(f"the file {path.name} {e}; save the slot again") from None
    return len(heads[0].tokens), n_bytes


def erase(session: EngineSession, slot: int) -> int:
    """Empties the slot; returns the tokens that it held. Waits until no text is written.

    Raises BusyError, CancelledError, DuoError.
    """
    with turn(session):
        return len(finish(session, _core.Errand("erase"), slot=slot).target_tokens)
