"""Begins a text in the core, when its turn has come."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from duo.generation.job import Job, check_options, job_of, n_kept, sampling, speculation
from duo.generation.pictures import pictures_of
from duo.generation.row_hooks import hooks_of
from duo.generation.session import EngineSession
from duo.generation.stream import Stream
from duo.generation.turns import Turn
from duo.options.generate import GenerateOptions
from duo.options.sampling import UNTIL_FULL

if TYPE_CHECKING:
    from duo.generation.job import Prompt
    from duo.generation.prompt_cache import PromptCache


def checked_options(session: EngineSession, options: dict[str, Any], function: str) -> GenerateOptions:
    """Keywords of texts of this session, complete. Raises BadValueError and TypeError."""
    engine = session.engine
    return check_options(options, function, session.local_model, engine.target, engine.draft)


def checked(session: EngineSession, prompt: Prompt, options: dict[str, Any], function: str) -> Job:
    """The request for a text of this session. Raises BadValueError and TypeError."""
    o = checked_options(session, options, function)
    return job_of(o, session.local_model, session.engine.target, prompt)


def start(
    session: EngineSession, prompt: Prompt, options: dict[str, Any], function: str, turn: Turn | None = None
) -> Stream:
    """Checks the request, waits for its turn and begins the text. Raises as `checked` and `open_stream`."""
    return open_stream(session, checked(session, prompt, options, function), turn)


def open_stream(session: EngineSession, job: Job, turn: Turn | None = None) -> Stream:
    """Waits for its turn and begins the text. turn: one that has not asked yet; None: a new one. Raises BadValueError,
    BusyError, CancelledError."""
    turn = turn or session.turns.new()
    try:
        session.wait_for_turn(turn)
        cache = None
        if job.options["prompt_cache"] is not None:
            from duo.generation.prompt_cache import open_cache

            cache = open_cache(session, job)
        return begin(session, job, None, turn, cache)
    except BaseException:
        session.turns.end(turn)
        raise


def begin(session: EngineSession, job: Job, task: object, turn: Turn, cache: PromptCache | None) -> Stream:
    """Begins a text whose turn it is. task: the asyncio task that will read it; None if this thread will."""
    o = job.options
    plan = speculation(o)
    plan.always = session.always
    text = None
    try:
        if session.network is not None:
            session.network.begin_text()
        session.add_hook(job.hook)  # the core may call it before begin() returns
        how = sampling(o, job.seed)
        shifts = o["context_shift"] and o["max_tokens"] != UNTIL_FULL
        if shifts:  # the text may have no end, so what looks back at all of it gets a limit
            n_ctx = session.local_model.n_ctx
            how.repeat_last_n = n_ctx if how.repeat_last_n < 0 else how.repeat_last_n
            how.dry_penalty_last_n = n_ctx if how.dry_penalty_last_n < 0 else how.dry_penalty_last_n
        hooks, chosen_from = hooks_of(session.engine, o, how)
        text = session.engine.begin(
            prompt=job.tokens,
            n_predict=max(-1, o["max_tokens"]),
            sampling=how,
            plan=plan,
            stop=job.stop,
            n_logprobs=-1 if o["logprobs"] is None else o["logprobs"],
            hook=job.hook,
            place=o["id_slot"],
            use_cache=o["cache_prompt"],
            n_mark=o["prompt_mark"],
            hooks=hooks,
            chosen_from=chosen_from,
            context_shift=shifts,
            n_keep=n_kept(o, session.local_model, job.tokens),
            n_discard=o["n_discard"],
            filtered_logprobs=o["post_sampling_probs"],
            pictures=pictures_of(job.tokens),
            lora_scales=o["lora_scales"] or [],
        )
        if session.network is not None:
            session.network.text_began(text.slot)
        s = Stream(session, job, text, turn, cache)
        turn.owner = (threading.get_ident(), task)
        session.add(s)
        return s
    except BaseException:
        # Ctrl-C may come after the engine has begun and before anybody holds the stream.
        if text is not None:
            session.cancel(text)
            if session.network is not None:
                session.network.end_text(text.slot)
        session.remove(None, job.hook)
        session.turns.end(turn)
        raise
