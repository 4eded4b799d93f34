"""What a draft of another vocabulary has to read and to guess, computed anew: csrc/llama/translation.h in Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from written_vocabularies import BYTE, CONTROL, Vocabulary

from duo import _core

N_MOST = 8  # tokens of the draft for one of the target
GAP = 1e-3  # between two logits: nearer ones are in no certain order


class Spelling:
    """Tokens by what they write; a byte's token only where no other one writes it."""

    def __init__(self, v: Vocabulary) -> None:
        self.by_piece: dict[bytes, int] = {}
        self.by_name = {t.text: i for i, t in enumerate(v.tokens) if t.type == CONTROL}
        for of_bytes in (False, True):
            for i, t in enumerate(v.tokens):
                if t.type != CONTROL and t.piece and (t.type == BYTE) == of_bytes:
                    self.by_piece.setdefault(t.piece, i)
        self.longest = max(map(len, self.by_piece))

    def spell(self, text: bytes) -> list[int]:
        """The longest tokens first. What no token writes is left out."""
        found = []
        while text:
            ends = range(min(self.longest, len(text)), 0, -1)
            n = next((n for n in ends if text[:n] in self.by_piece), 0)
            found += [self.by_piece[text[:n]]] if n else []
            text = text[max(n, 1) :]
        return found


def _control(a: Vocabulary, token: int, b: Vocabulary, names: Spelling) -> int | None:
    same = names.by_name.get(a.tokens[token].text)
    if same is not None:
        return same
    return b.end if token == a.end else b.begin if token == a.begin else None


class Translation:
    """read: the draft's tokens for each of the target's. write: the target's token for each of the draft's, or None."""

    def __init__(self, target: Vocabulary, draft: Vocabulary) -> None:
        self.target, self.draft = target, draft
        of_target, of_draft = Spelling(target), Spelling(draft)
        self.read = [self._read(i, of_draft) for i in range(len(target.tokens))]
        self.write = [self._write(i, of_target) for i in range(len(draft.tokens))]
        ordinary = [t for t in draft.tokens if t.type != CONTROL and t.piece]
        same = sum(t.piece in of_target.by_piece for t in ordinary)
        self.shared = same / max(1, min(len(ordinary), len(of_target.by_piece)))

    def _read(self, token: int, of_draft: Spelling) -> list[int]:
        t = self.target.tokens[token]
        if t.type != CONTROL:
            return of_draft.spell(t.piece)[-N_MOST:] or [0]
        same = _control(self.target, token, self.draft, of_draft)
        return [same] if same is not None else of_draft.spell(t.text.encode())[-N_MOST:] or [0]

    def _write(self, token: int, of_target: Spelling) -> int | None:
        t = self.draft.tokens[token]
        if t.type == CONTROL:
            return _control(self.draft, token, self.target, of_target)
        some = of_target.spell(t.piece)
        return some[0] if some else None

    def guesses(self, text: Sequence[int], probe: _core.Probe) -> list[tuple[int, float]]:
        """The target's token that the draft likes best after each of these, and how much more than the next one."""
        first = self.read[text[0]]
        begin = [self.draft.begin] * (self.draft.begins and first[0] != self.draft.begin)
        spelled = [*begin, *first]
        ends = [len(spelled)]
        for token in text[1:]:
            spelled += self.read[token]
            ends.append(len(spelled))
        probe.decode(spelled, 0)
        logits = probe.logits()
        return [self._best(logits[end - 1]) for end in ends]

    def _best(self, row: np.ndarray) -> tuple[int, float]:
        scores = np.full(len(self.target.tokens), -np.inf)
        for token, other in enumerate(self.write):
            if other is not None:
                scores[other] = max(scores[other], row[token])
        scores[self.target.end] = -np.inf  # the texts of the tests go on
        last, best = np.argsort(scores)[-2:]
        return int(best), float(scores[best] - scores[last])
