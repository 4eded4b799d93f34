"""What the other side must know of a model, and whether two models fit, by the rules of csrc/llama/pair_check.cpp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from duo.remote.wire import wire_pb2 as wire
from duo.remote.wire.codec import N_SIZE_SLACK, ProtocolError, count, in_range, printable

N_BLOCK = 256  # tokens of one hash
N_FIRST_EQUAL = 5  # the first tokens may differ
N_VOCAB_MAX = 1 << 22
ADVICE = "; choose a draft of the same model family"

Texts = Callable[[int, int], list[bytes]]  # (first, n) -> texts of n tokens from `first`


class CoreVocabulary(Protocol):
    """A model's vocabulary, as the core has it (_core.Vocabulary)."""

    @property
    def n_tokens(self) -> int: ...
    @property
    def type(self) -> int: ...
    @property
    def bos(self) -> int: ...
    @property
    def eos(self) -> int: ...
    @property
    def add_bos(self) -> bool: ...
    @property
    def add_eos(self) -> bool: ...
    def text(self, token: int) -> bytes: ...
    def hash(self, first: int, n: int) -> int: ...


def texts_of(v: CoreVocabulary) -> Texts:
    return lambda first, n: [v.text(i) for i in range(first, min(first + n, v.n_tokens))]


@dataclass(frozen=True)
class Identity:
    """A model's name and hashes of its vocabulary."""

    model: str
    n_vocab: int
    type: int
    bos: int
    eos: int
    add_bos: bool
    add_eos: bool
    blocks: tuple[int, ...]

    @classmethod
    def of(cls, model: str, v: CoreVocabulary) -> Identity:
        """model: its name, for messages."""
        blocks = []
        for first in range(0, v.n_tokens, N_BLOCK):
            start = max(first, N_FIRST_EQUAL)
            end = min(first + N_BLOCK, v.n_tokens)
            blocks.append(v.hash(start, end - start) if start < end else 0)
        return cls(model, v.n_tokens, v.type, v.bos, v.eos, v.add_bos, v.add_eos, tuple(blocks))

    @cached_property
    def message(self) -> wire.Identity:
        return wire.Identity(
            model=self.model,
            vocabulary=wire.Vocabulary(
                n_vocab=self.n_vocab, type=self.type, bos=self.bos, eos=self.eos, add_bos=self.add_bos,
                add_eos=self.add_eos, blocks=self.blocks,
            ),
        )  # fmt: skip

    @classmethod
    def from_message(cls, m: wire.Identity) -> Identity:
        """Raises ProtocolError."""
        v = m.vocabulary
        in_range(v.n_vocab, 1, N_VOCAB_MAX, "the size of a vocabulary")
        count(len(v.blocks), N_VOCAB_MAX // N_BLOCK, "hashes")
        if len(v.blocks) != -(-v.n_vocab // N_BLOCK) or len(m.model) > 512:
            raise ProtocolError("the number of hashes does not match the size of the vocabulary")
        return cls(printable(m.model), v.n_vocab, v.type, v.bos, v.eos, v.add_bos, v.add_eos, tuple(v.blocks))


def _quoted(text: bytes) -> str:
    out = b""
    for b in text:
        if len(out) >= 40:
            break
        out += bytes([b]) if b >= 0x20 and b != 0x7F else b"\\x%02x" % b
    return "'" + printable(out.decode("utf-8", "replace")) + "'"


def _first_difference(target: Identity, draft: Identity, target_texts: Texts | None, draft_texts: Texts | None) -> str:
    """Describes the first token that differs, or without texts the first range; empty: no token differs."""
    common = min(target.n_vocab, draft.n_vocab)
    for block in range(-(-common // N_BLOCK)):
        at, end = max(block * N_BLOCK, N_FIRST_EQUAL), (block + 1) * N_BLOCK
        # A hash says something only where both vocabularies have the whole of its tokens.
        same_tokens = min(end, target.n_vocab) == min(end, draft.n_vocab)
        if same_tokens and target.blocks[block] == draft.blocks[block]:
            continue
        end = min(end, common)
        if target_texts is None or draft_texts is None:
            if same_tokens:
                return f"some of its tokens {at} to {end - 1} are not the target's"
            continue
        while at < end:
            target_part, draft_part = target_texts(at, end - at), draft_texts(at, end - at)
            n = min(len(target_part), len(draft_part), end - at)
            if n == 0:
                raise ProtocolError("the host does not send the texts of its tokens")
            for i in range(n):
                if target_part[i] != draft_part[i]:
                    in_draft, in_target = _quoted(draft_part[i]), _quoted(target_part[i])
                    return f"token {at + i} is {in_draft} in the draft and {in_target} in the target"
            at += n
    return ""


def _special(name: str, begins: str, target: tuple[bool, int], draft: tuple[bool, int]) -> str:
    """Describes how a special token differs, given as (added to texts, id); empty: no difference that matters."""
    if target[0] != draft[0]:
        draft_word, target_word = ("with" if adds else "without" for adds, _ in (draft, target))
        return f"it {begins} a text {draft_word} its {name} token and the target {target_word}"
    if target[0] and target[1] != draft[1]:
        return f"its {name} token is {draft[1]} and the target's is {target[1]}"
    return ""


def mismatch(
    target: Identity, draft: Identity, target_texts: Texts | None = None, draft_texts: Texts | None = None
) -> str:
    """Why this draft does not fit this target, as one sentence; empty: it fits. Texts are read only if hashes differ.

    Raises what the texts raise.
    """
    why = ""
    if target.type != draft.type:
        why = f"their tokenizers are of different types ({draft.type} and {target.type})"
    why = why or _first_difference(target, draft, target_texts, draft_texts)
    if not why and abs(target.n_vocab - draft.n_vocab) > N_SIZE_SLACK:
        why = f"its vocabulary has {draft.n_vocab} tokens and the target's {target.n_vocab}"
    why = why or _special("BOS", "begins", (target.add_bos, target.bos), (draft.add_bos, draft.bos))
    why = why or _special("EOS", "ends", (target.add_eos, target.eos), (draft.add_eos, draft.eos))
    return f"the draft does not fit the target: {why}{ADVICE}" if why else ""
