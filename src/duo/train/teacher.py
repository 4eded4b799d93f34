"""The target as a teacher: duo writes its continuations, then its features and most probable tokens, group by group."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from duo import _core
from duo.errors import BadValueError
from duo.generation.many import as_they_end
from duo.model import Duo
from duo.models.paths import model_bytes
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement.place import place_alone
from duo.train.bf16 import to_bf16
from duo.train.documents import Document, read_documents
from duo.train.lessons import Array, Folder, Kind, LessonTexts
from duo.train.recipe import DataRecipe, Pieces, PlannedText

Progress = Callable[[str, int, int], None]  # what, tokens done, tokens in all
Group = tuple[Kind, int, range]  # its number, and which texts it has

SMALL = 2 << 30  # bytes of a model beside which 16 caches are no matter
N_PASS = 256  # rows of a pass at most
N_LOGITS = 1 << 24  # numbers of a pass's logits at most


class Teacher:
    """A target that fills a folder with lessons. What the folder has is not made again."""

    def __init__(
        self,
        target: Path,
        recipe: DataRecipe,
        folder: Folder,
        n_tokens: int,
        engine: dict[str, Any],
        progress: Progress,
    ) -> None:
        """engine: keywords of `Duo` that place the target."""
        self._target, self._recipe, self._folder = target, recipe, folder
        self._engine, self._progress = engine, progress
        n_texts, n_check = recipe.n_texts(n_tokens), recipe.n_check(n_tokens)
        counts: list[tuple[Kind, int]] = [("check", n_check), ("learn", n_texts)]
        self._groups: list[Group] = [
            (kind, i, range(first, min(first + recipe.n_group, n)))
            for kind, n in counts
            for i, first in enumerate(range(0, n, recipe.n_group))
        ]
        self._n_tokens = (n_texts + n_check) * recipe.length

    def teach(self, data: Sequence[Path]) -> float:
        """Makes what is missing. Returns the seconds that it took. Raises DuoError."""
        began = time.monotonic()
        # A run with fewer tokens may have left its last group short.
        missing = [(kind, i, texts[self._folder.n_texts(kind, i) :]) for kind, i, texts in self._groups]
        if to_write := [g for g in missing if len(g[2])]:
            self._write(to_write, data)
        if to_read := [g for g in self._groups if self._folder.n_lessons(*g[:2]) < len(g[2])]:
            left = sum(len(g[2]) for g in to_read) * self._recipe.length
            self._folder.check_room(left * self._recipe.bytes_per_token)
            self._read(to_read)
        return time.monotonic() - began

    # ---- texts

    def _write(self, groups: list[Group], data: Sequence[Path]) -> None:
        """groups: with the texts that they lack."""
        options = dict(self._engine)
        length = self._recipe.length
        if options.get("n_parallel") is None:
            options["n_parallel"] = 16 if model_bytes(str(self._target)) < SMALL else "auto"
        options["n_ctx"] = length * (1 if options["n_parallel"] == "auto" else int(options["n_parallel"]))
        with Duo(self._target, **options) as d:
            pieces = self._pieces(d, data)
            n_done = self._n_tokens - sum(len(g[2]) for g in groups) * length
            for kind, group, indices in groups:
                n_before = n_done
                planned = [pieces.check(i) if kind == "check" else pieces.planned_text(i) for i in indices]
                done: dict[int, list[int]] = {w.index: w.tokens.tolist() for w in planned}
                unwritten = [w for w in planned if w.n_write > 0]
                write = partial(self._written, d)
                with closing(as_they_end(write, unwritten, d.n_parallel, d.close)) as written:
                    for i, tokens in written:
                        done[unwritten[i].index] += tokens
                        n_done += length
                        self._progress("the target writes", n_done, self._n_tokens)
                texts = [(done[w.index][:length], len(w.tokens)) for w in planned]
                self._folder.put_texts(kind, group, [*self._written_before(kind, group), *texts])
                n_done = n_before + len(indices) * length  # also those that it only reads
                self._progress("the target writes", n_done, self._n_tokens)

    def _written_before(self, kind: Kind, group: int) -> list[tuple[list[int], int]]:
        if self._folder.n_texts(kind, group) == 0:
            return []
        texts = self._folder.texts(kind, group)
        return [(texts.of(i).tolist(), int(texts.n_given[i])) for i in range(len(texts))]

    @staticmethod
    def _written(d: Duo, text: PlannedText) -> list[int]:
        result = d.generate(
            text.tokens.tolist(),
            max_tokens=text.n_write,
            temperature=text.temperature,
            seed=text.seed,
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            repeat_penalty=1.0,
        )
        return list(result.tokens)

    def _pieces(self, d: Duo, data: Sequence[Path]) -> Pieces:
        bos = d.tokenize("")
        read: list[Array] = []
        answered: list[Array] = []
        for document in read_documents(data):
            text, special = document.text, False
            if document.messages:
                text, special = _rendered(d, document), True
            tokens = np.array(d.tokenize(text, add_bos=False, special=special), np.int32)
            if bos and len(tokens) and tokens[0] == bos[0]:  # a template that writes it itself
                tokens = tokens[1:]
            (answered if document.answered else read).append(tokens)
        return Pieces(self._recipe, bos, read, answered)

    # ---- lessons

    def _read(self, groups: list[Group]) -> None:
        o = ModelOptions.of(engine_options({**self._engine, "n_parallel": 1, "n_ctx": self._recipe.length}), "target",
                            str(self._target))  # fmt: skip
        placed = place_alone(replace(o, n_batch=N_PASS, n_ubatch=N_PASS))
        if self._recipe.layers:
            placed.feature_layers = list(self._recipe.layers)
        probe = _core.Probe(placed)
        n_done = self._n_tokens - sum(len(g[2]) for g in groups) * self._recipe.length
        for kind, group, indices in groups:
            texts = self._folder.texts(kind, group)
            read: dict[str, list[Array]] = {"features": [], "top_ids": [], "top_log_p": []}
            for i in range(len(texts)):
                self._read_text(probe, texts.of(i).tolist(), read)
                self._progress("the target reads", n_done + (i + 1) * self._recipe.length, self._n_tokens)
            n_done += len(indices) * self._recipe.length
            self._folder.put_lessons(kind, group, _arrays(texts, read))

    def _read_text(self, probe: _core.Probe, tokens: list[int], read: dict[str, list[Array]]) -> None:
        n_pass = max(1, min(N_PASS, N_LOGITS // probe.n_vocab))
        top = min(self._recipe.top, probe.n_vocab)
        for first in range(0, len(tokens), n_pass):
            probe.decode(tokens[first : first + n_pass], first)
            ids, log_p = best(probe.logits(), top)
            read["top_ids"].append(ids)
            read["top_log_p"].append(log_p)
            if self._recipe.layers:
                features = probe.features()
                if not np.isfinite(features).all():
                    raise BadValueError(
                        f"{self._target.name} gave hidden states with NaN or infinity; try other --layers"
                    )
                read["features"].append(to_bf16(features))


def _rendered(d: Duo, document: Document) -> str:
    """Raises BadValueError: the target's template refuses the conversation."""
    try:
        return d.chat_template.render(list(document.messages))
    except BadValueError as e:
        raise BadValueError(f"{document.where}: {e}") from None


def best(logits: Array, n: int) -> tuple[Array, Array]:
    """Ids and log-probabilities (nats) of the n most probable tokens of each row, in descending order."""
    import torch

    rows = torch.from_numpy(logits)
    values, ids = rows.topk(n, dim=-1)
    log_p = values - rows.logsumexp(-1, keepdim=True)
    return ids.to(torch.int32).numpy(), log_p.to(torch.float16).numpy()


def _arrays(texts: LessonTexts, read: dict[str, list[Array]]) -> dict[str, Array]:
    arrays = {name: np.concatenate(parts) for name, parts in read.items() if parts}
    return {"tokens": texts.tokens, "starts": texts.starts, "n_given": texts.n_given, **arrays}
