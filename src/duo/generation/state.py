"""What the models' caches hold of a text, as an object and as a file.

A file: MAGIC, the length of a head (8 bytes, little-endian), the head (JSON), its SHA-256, and the caches in the order
of the head. libllama gets a cache only if its checksum is right.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from duo import _core
from duo.errors import BadValueError
from duo.generation.errand import finish
from duo.generation.session import EngineSession
from duo.placement.belongings import difference
from duo.support.atomic import replacing

if TYPE_CHECKING:
    import numpy as np

MAGIC = b"duo-cache 1\n"
N_HEAD_MOST = 1 << 28  # bytes
ROLES = ("target", "draft")


class BadStateError(BadValueError):
    """What is wrong with a saved state: the words after its name. `foreign`: duo did not make it."""

    def __init__(self, why: str, *, foreign: bool = False) -> None:
        super().__init__(why)
        self.foreign = foreign


@dataclass(frozen=True)
class CacheHead:
    """The model and the tokens of a saved cache."""

    role: str
    belongs: dict[str, str]
    tokens: tuple[int, ...] = field(repr=False)
    n_bytes: int
    sha256: str  # of the other fields and the cache
    lora_scales: tuple[float, ...] = ()  # a target's

    @classmethod
    def of(
        cls,
        role: str,
        belongs: dict[str, str],
        tokens: Sequence[int],
        saved: bytes | memoryview,
        scales: Sequence[float] = (),
    ) -> CacheHead:
        head = json.dumps([role, belongs, list(tokens), *scales], sort_keys=True).encode()
        digest = hashlib.sha256(head)
        digest.update(saved)
        return cls(role, belongs, tuple(tokens), len(saved), digest.hexdigest(), tuple(scales))

    def check(self, saved: bytes | memoryview) -> None:
        """Raises BadStateError."""
        try:
            right = CacheHead.of(self.role, self.belongs, self.tokens, saved, self.lora_scales) == self
        except (TypeError, ValueError):
            right = False
        if not right:
            raise BadStateError("is damaged")


@dataclass(frozen=True)
class SavedCache:
    head: CacheHead
    saved: bytes = field(repr=False)  # megabytes


@dataclass(frozen=True)
class State:
    """What the caches of a `Duo` hold of a text: what `save_state` returns and `load_state` takes. It can be pickled.

    Names are those of llama_cpp.LlamaState.
    """

    target: SavedCache
    """The target's cache."""
    draft: SavedCache | None
    """The draft's cache. None: there was no draft."""
    seed: int
    """The default seed when it was saved."""
    evaluated: tuple[int, ...] = ()
    """Tokens that llama_cpp's `eval` was given; empty: it was not used."""
    scores: np.ndarray[Any, Any] | None = field(default=None, repr=False, compare=False)
    """With logits_all, float32 [n_tokens, n_vocab]: logits behind the tokens that `eval` was given."""

    @property
    def n_tokens(self) -> int:
        """Number of tokens that need not be evaluated again, or that `eval` was given."""
        return len(self.evaluated or self.target.head.tokens)

    @property
    def input_ids(self) -> np.ndarray[Any, Any]:
        """The ids of these tokens."""
        import numpy as np

        return np.array(self.evaluated or self.target.head.tokens, np.intc)

    @property
    def llama_state(self) -> bytes:
        """The bytes of the target's cache, in the format of llama.cpp's llama_state_get_data."""
        return self.target.saved

    @property
    def llama_state_size(self) -> int:
        """Their number."""
        return len(self.target.saved)


def save(
    session: EngineSession, n_keep: int = -1, tokens: Sequence[int] = (), slot: int = -1
) -> tuple[_core.Errand, list[CacheHead]]:
    """What the caches hold of the text that begins with these tokens; without tokens, of the one that ended last.

    slot: in the target's cache, whatever it holds. n_keep: of at most so many tokens, and the rest is forgotten. Call
    it in a turn.

    The errand has the bytes of each. Raises DuoError.
    """
    of = session.belongings
    errand = finish(session, _core.Errand("save", n_keep=n_keep), tokens, slot)
    heads = []
    caches = ((errand.target_tokens, errand.target_saved()), (errand.draft_tokens, errand.draft_saved()))
    for role, (tokens, saved) in zip(ROLES, caches, strict=True):
        if role == "target" or (tokens and role in of):
            scales = errand.lora_scales if role == "target" else ()
            heads.append(CacheHead.of(role, of[role], tokens, saved, scales))
    return errand, heads


def check_target(session: EngineSession, head: CacheHead) -> None:
    """Raises BadStateError: the saved cache is not one of this target. Raises DuoError as well."""
    if why := difference(head.belongs, session.belongings["target"]):
        raise BadStateError(f"was made with another {why}")


def restore(session: EngineSession, caches: Sequence[SavedCache], slot: int = -1) -> None:
    """Puts saved caches in place of what the models' hold. slot: in the target's cache; -1: that of the oldest text.
    Call it in a turn. Raises BadStateError and DuoError.

    A draft's cache that belongs to another draft is left out: it would only have made the text faster.
    """
    of = session.belongings
    errand = _core.Errand("restore")
    for cache in caches:
        head = cache.head
        if head.role == "target":
            check_target(session, head)
        if head.role in of and not difference(head.belongs, of[head.role]):
            head.check(cache.saved)
            try:
                if head.role == "target":
                    errand.give_target(head.tokens, cache.saved, head.lora_scales)
                else:
                    errand.give_draft(head.tokens, cache.saved)
            except TypeError:
                raise BadStateError("is damaged") from None
    finish(session, errand, slot=slot)


def state_of(session: EngineSession, seed: int) -> State:
    """The state of a session. Call it in a turn. Raises DuoError."""
    errand, heads = save(session)
    saved = {"target": errand.target_saved(), "draft": errand.draft_saved()}
    caches = {h.role: SavedCache(h, bytes(saved[h.role])) for h in heads}
    return State(caches["target"], caches.get("draft"), seed)


# ---- files


def write(path: Path, errand: _core.Errand, heads: Sequence[CacheHead]) -> int:
    """Replaces the file. Returns its bytes. Raises OSError."""
    head = json.dumps([vars(h) for h in heads]).encode()
    parts: list[bytes | memoryview] = [
        MAGIC, len(head).to_bytes(8, "little"), head, hashlib.sha256(head).digest(),
        *({"target": errand.target_saved(), "draft": errand.draft_saved()}[h.role] for h in heads),
    ]  # fmt: skip
    with replacing(path) as fresh, fresh.open("wb") as file:
        for part in parts:
            file.write(part)
    return sum(map(len, parts))


def _head_of(x: Any) -> CacheHead:
    """A head as its file has it. Raises ValueError, TypeError and KeyError: it is none, whatever its checksum says."""
    head = CacheHead(**{**x, "tokens": tuple(x["tokens"]), "lora_scales": tuple(x.get("lora_scales", ()))})
    if not isinstance(head.belongs, dict):
        raise TypeError
    texts = [head.role, head.sha256, *head.belongs, *head.belongs.values()]
    numbers = [head.n_bytes, *head.tokens]
    scales_are_right = all(type(x) is float for x in head.lora_scales)
    if (
        not all(isinstance(t, str) for t in texts)
        or not scales_are_right
        or not all(type(n) is int and n >= 0 for n in numbers)
    ):
        raise ValueError
    return head


def read_heads(file: BinaryIO, n_file: int) -> list[CacheHead]:
    """The heads of the caches; the first cache begins where the file stands then. Raises BadStateError and OSError."""
    if file.read(len(MAGIC)) != MAGIC:
        raise BadStateError("is not a prompt cache of duo", foreign=True)
    n = int.from_bytes(file.read(8), "little")
    head = file.read(n) if n <= min(N_HEAD_MOST, n_file) else b""
    if len(head) != n or file.read(32) != hashlib.sha256(head).digest():
        raise BadStateError("is damaged")
    try:
        heads = [_head_of(x) for x in json.loads(head)]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadStateError("is damaged") from None
    if not heads or heads[0].role != "target" or file.tell() + sum(h.n_bytes for h in heads) != n_file:
        raise BadStateError("is truncated")
    return heads


def read_caches(file: BinaryIO, heads: Sequence[CacheHead]) -> list[SavedCache]:
    """The caches behind their heads. Raises OSError and MemoryError."""
    return [SavedCache(h, file.read(h.n_bytes)) for h in heads]
