"""Log-probabilities of a prompt's own tokens (`echo` with `logprobs`), as programs that evaluate models want them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from duo.generation.errand_async import score_async

if TYPE_CHECKING:
    from duo.compat.openai.logprobs import LogprobLists
    from duo.compat.openai.shapes import Logprobs
    from duo.generation.job import Job
    from duo.generation.result import TokenLogprobs
    from duo.generation.session import EngineSession


class PromptScores:
    """Of one prompt, for all texts that begin with it. For one event loop.

    of_ids: the client sent token ids. It counts rows by them, so a BOS token has one, too.
    """

    def __init__(self, *, of_ids: bool) -> None:
        self._of_ids = of_ids
        self._one_at_a_time = asyncio.Lock()
        self._rows: list[TokenLogprobs] | None = None

    async def fill(self, session: EngineSession, job: Job) -> None:
        """Evaluates the prompt, once, while no text is written. Raises BusyError, CancelledError, DuoError."""
        async with self._one_at_a_time:
            if self._rows is None:
                n_top = job.options["logprobs"] or 0
                scales = job.options["lora_scales"] or ()
                self._rows = await score_async(session, job.tokens, n_top, job.options["id_slot"], scales)

    def shown(self, lists: LogprobLists, job: Job) -> Logprobs:
        """As OpenAI has them. lists: new ones."""
        return lists.of_prompt(job.tokens[0], self._rows or [], keeps_bos=self._of_ids)
