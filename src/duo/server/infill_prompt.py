"""The prompt of /infill, as llama-server makes it: other files, then what stands before and behind the gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from duo.errors import BadValueError
from duo.server.build_jobs import tokens_of
from duo.server.errors import ApiError
from duo.server.request_options import most_tokens

if TYPE_CHECKING:
    from duo.model import Duo
    from duo.server.schemas import InfillFields

PROJECT, GAP_FILE = "myproject\n", "filename\n"  # llama-server's: a request does not name them
SNIPPET = "\n\n--- snippet ---\n\n"  # before a file, if the model has no token for that


def infill_prompt(duo: Duo, f: InfillFields) -> list[int]:
    """Token ids. The end of the prefix and the beginning of the suffix share a batch, 3:1, and the last tokens of the
    other files fill the rest of the context.

    llama-server refuses a prompt that does not fit then. Here the answer keeps its place, a quarter of the context at
    most, and the prompt becomes shorter. Raises BadValueError, ApiError.
    """
    model, vocabulary = duo.local_model, duo.local_model.vocabulary
    before, behind, middle = model.fim_tokens
    if min(before, behind, middle) < 0:
        raise ApiError(501, "this model has no tokens for infill; load one that was trained to fill in the middle")
    prefix, suffix = (_plain(duo, x or "") for x in (f.input_prefix, f.input_suffix))
    typed = tokens_of(duo, f.prompt or "", add_special=False)
    files = _files(duo, f.input_extra or ())
    bos = [vocabulary.bos] * (vocabulary.add_bos and vocabulary.bos >= 0)

    n_ctx, n_batch = duo.n_ctx(), duo.options["n_batch"]
    n_server, n_asked = duo.defaults.get("max_tokens", -1), most_tokens(f)
    n_predict = n_server if n_asked is None else n_asked
    n_answer = min(max(1, n_predict) if n_predict >= 0 else n_ctx, n_ctx // 4)

    def gap(n_most: int) -> list[int]:
        n_suffix = max(0, n_most // 4 - (2 + len(typed)))
        first = [before, *_last(prefix, 3 * (n_most // 4)), *typed]
        then = [behind, *suffix[:n_suffix]]
        return [*bos, *(then + first if duo.spm_infill else first + then), middle]

    ids = gap(n_batch)
    if len(ids) + n_answer > n_ctx:
        ids = gap(min(n_batch, max(0, n_ctx - n_answer - 2)))
    n_files = min(n_ctx - n_batch - 2 * max(-1, n_server), n_ctx - n_answer - len(ids))
    return _last(files, n_files) + ids


def _files(duo: Duo, chunks: Sequence[Mapping[str, Any]]) -> list[int]:
    """The other files, each behind its name, and what begins the file with the gap. Raises BadValueError."""
    repository, file = duo.local_model.repository_tokens
    ids = [repository, *_plain(duo, PROJECT)] if repository >= 0 else []
    for i, chunk in enumerate(chunks):
        text, name = chunk.get("text"), chunk.get("filename", "tmp")
        if not isinstance(text, str) or not isinstance(name, str):
            raise BadValueError(f"input_extra {i} has no text; write {{'filename': ..., 'text': ...}}")
        ids += [file, *_plain(duo, name + "\n")] if file >= 0 else _plain(duo, SNIPPET)
        ids += _plain(duo, text)
    return [*ids, file, *_plain(duo, GAP_FILE)] if file >= 0 else ids


def _plain(duo: Duo, text: str | list[Any]) -> list[int]:
    """Control tokens in code are text. Raises BadValueError."""
    return tokens_of(duo, text, add_special=False, parse_special=False)


def _last(ids: list[int], n: int) -> list[int]:
    return ids[max(0, len(ids) - max(0, n)) :]
