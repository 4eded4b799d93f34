"""What a pair opens while it loads is closed again if it cannot be loaded."""

from types import SimpleNamespace
from typing import Any

import pytest

from duo import Duo, DuoError, loaded_pair


def test_connections_end_if_a_pair_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def fails(*_: Any, **__: Any) -> None:
        raise DuoError("no session")

    monkeypatch.setattr(loaded_pair, "attach", lambda *_: SimpleNamespace(close=lambda: closed.append(True)))
    monkeypatch.setattr(loaded_pair, "EngineSession", fails)
    with pytest.raises(DuoError, match="no session"):
        Duo(draft_host="127.0.0.1:1")
    assert closed == [True]
