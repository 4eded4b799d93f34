"""Requests become texts that can be written: prompts are tokenized and everything is checked. Call it in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from duo.chat.pictures import MARKER, between, decoded
from duo.errors import BadValueError
from duo.generation.begin import checked_options
from duo.generation.errand import check_scores
from duo.generation.job import Job, job_of
from duo.generation.pictures import seen_tokens
from duo.server.errors import ApiError, too_long
from duo.server.line_indent import LineIndent
from duo.server.prompt_scores import PromptScores
from duo.server.request_options import text_options
from duo.server.text import ServedText
from duo.support.picture_file import N_MOST as N_PICTURES
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.compat.llama_cpp.answer import Reading
    from duo.generation.session import EngineSession
    from duo.model import Duo
    from duo.server.schemas import TextFields

N_MOST = 1024  # prompts of one request
N_SCORES = 1 << 20  # log-probabilities of prompts in one answer: more would stop the event loop while it is encoded


def listed(prompt: Any, n_most: int = N_MOST) -> list[Any]:
    """The prompts of a request: one, or a list of them. Raises BadValueError."""
    if prompt is None:
        raise BadValueError("the request has no prompt; give text, token ids, or a list of them")
    if not isinstance(prompt, list):
        return [prompt]
    if not prompt:
        raise BadValueError("the prompt is an empty list; give text or token ids")
    if len(prompt) > n_most and not all(isinstance(x, int) for x in prompt):
        raise BadValueError(f"the request has {len(prompt)} prompts; send at most {n_most} at a time")
    several = all(isinstance(x, str) for x in prompt) or any(isinstance(x, list | Mapping) for x in prompt)
    return prompt if several else [prompt]


def tokens_of(duo: Duo, prompt: Any, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
    """Ids of text, ids, a mix of both, or {prompt_string}. Raises BadValueError."""
    if isinstance(prompt, Mapping):
        if pictures := prompt.get("multimodal_data"):
            return _seen(duo, prompt.get("prompt_string"), pictures, add_special=add_special)
        if not isinstance(text := prompt.get("prompt_string"), str):
            wrong = "whose prompt_string is no text" if "prompt_string" in prompt else "without a prompt_string"
            raise BadValueError(f"the prompt is {quoted(prompt)}, {wrong}; give one, or text")
        prompt = text
    if isinstance(prompt, str):
        return duo.tokenize(prompt, add_special, parse_special)
    if not isinstance(prompt, list):
        raise BadValueError(f"the prompt is {quoted(prompt)}; give text, token ids, or a list of them")
    ids: list[int] = []
    for i, x in enumerate(prompt):
        if isinstance(x, str):
            ids += duo.tokenize(x, add_special and i == 0, parse_special)
        elif isinstance(x, int) and not isinstance(x, bool) and 0 <= x < duo.n_vocab():
            ids.append(x)
        else:
            raise BadValueError(
                f"part {i} of the prompt is {quoted(x)}; give texts and token ids (0 to {duo.n_vocab() - 1})"
            )
    return ids


def _seen(duo: Duo, words: Any, pictures: Any, *, add_special: bool) -> list[int]:
    """llama-server's: a text with markers, and base64 of the pictures. Raises BadValueError."""
    if not isinstance(words, str) or not isinstance(pictures, list) or not all(isinstance(p, str) for p in pictures):
        raise BadValueError("a prompt with multimodal_data has a prompt_string, and base64 of each picture")
    if len(pictures) > N_PICTURES:
        raise BadValueError(f"the prompt has {len(pictures)} pictures; give at most {N_PICTURES}")
    parts = between(words, MARKER, map(decoded, pictures))
    return seen_tokens(duo.local_model, parts, add_special=add_special)


def n_choices(f: TextFields) -> int:
    """Texts for each prompt. Raises BadValueError."""
    n = f.n if f.n is not None else f.n_cmpl if f.n_cmpl is not None else 1
    if n < 1:
        raise BadValueError(f"n is {n}; give 1 or more")
    return n


def check_number(duo: Duo, n: int) -> None:
    """Raises BadValueError: more choices than slots."""
    if n > duo.session.turns.n:
        raise BadValueError(f"n is {n}; this server writes at most {duo.session.turns.n} texts at once (-np)")


def jobs_of(duo: Duo, prompts: Iterable[Sequence[int]], n: int, options: dict[str, Any]) -> Iterator[Job]:
    """n texts for each prompt, whose seeds follow each other. max_tokens 0: the prompts are only read. Raises
    BadValueError, ApiError."""
    reads_only = options.get("max_tokens") == 0
    model, target = duo.local_model, duo.engine.target
    try:
        o = checked_options(duo.session, {**options, "max_tokens": 1} if reads_only else options, "generate")
        if reads_only:
            o = {**o, "max_tokens": 0, "mode": "plain"}
        for tokens in prompts:
            if len(tokens) >= duo.n_ctx():
                raise too_long(len(tokens), duo.n_ctx())
            first = job_of(o, model, target, tokens)
            yield first
            for i in range(1, n):
                own = job_of(o, model, target, first.tokens)
                yield replace(own, tokens=first.tokens, seed=(first.seed + i) % 2**64)  # they share the prompt
    except TypeError as e:
        raise BadValueError(str(e)) from None


def texts_of(
    duo: Duo,
    f: TextFields,
    prompts: Sequence[tuple[str, list[int]]],
    *,
    shape: Mapping[str, Any] | None = None,
    reading: Callable[[], Reading] | None = None,
) -> list[ServedText]:
    """n texts for each prompt (its text, its tokens). shape: keywords that the dialect adds.

    Raises BadValueError, ApiError.
    """
    options = {**text_options(f, duo), **(shape or {})}
    if f.grammar and "json_schema" in (shape or {}):
        raise BadValueError(
            "grammar was given together with tools or response_format, which make a grammar of their own; leave it out"
        )
    n = n_choices(f)
    check_number(duo, n)
    most_ms = max(0.0, f.t_max_predict_ms or 0.0)
    jobs = jobs_of(duo, (tokens or _begin(duo) for _, tokens in prompts), n, options)
    words = (w for w, _ in prompts for _ in range(n))
    return [
        ServedText(i, job, w, reading() if reading else None, most_ms, _indent(f))
        for i, (job, w) in enumerate(zip(jobs, words, strict=True))
    ]


def _indent(f: TextFields) -> LineIndent | None:
    """For one text. Raises BadValueError."""
    n = f.n_indent or 0
    if n < 0:
        raise BadValueError(f"n_indent is {n}; give the number of spaces that each line must begin with, or 0")
    return LineIndent(n) if n else None


def _begin(duo: Duo) -> list[int]:
    """What stands for an empty prompt. Raises ApiError."""
    if duo.token_bos() < 0:
        raise ApiError(400, "the prompt is empty; give at least one token")
    return [duo.token_bos()]


def score_prompts(session: EngineSession, texts: Sequence[ServedText], n: int, of_ids: Sequence[bool]) -> None:
    """The prompts of texts that want log-probabilities are scored when they are written.

    n: texts for each prompt. of_ids: for each prompt, whether it was sent as token ids. Raises BadValueError.
    """
    if not texts or texts[0].job.options["logprobs"] is None:
        return
    for text in texts:
        check_scores(session, text.job.tokens)
    n_top = texts[0].job.options["logprobs"] + 1
    n_rows = sum(len(t.job.tokens) for t in texts)
    if n_rows * n_top > N_SCORES:
        raise BadValueError(
            f"echo and logprobs ask for {n_rows * n_top} log-probabilities of prompts; ask for at most {N_SCORES} at a "
            "time, with fewer prompts or fewer alternatives"
        )
    for i, whether in enumerate(of_ids):
        scores = PromptScores(of_ids=whether)
        for text in texts[i * n : (i + 1) * n]:
            text.scores = scores
