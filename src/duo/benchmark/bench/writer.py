"""Generates answers with a loaded pair."""

from __future__ import annotations

from collections.abc import Sequence

from duo.benchmark.bench.arms import Arm
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.record import MeasuredAnswer
from duo.benchmark.bench.strangers import strangers
from duo.model import Duo
from duo.options.generate import GenerateOptions
from duo.options.option import Mode


class DuoWriter:
    """Generates with a Duo. options: complete keywords of `Duo.stream`; the arms set mode and n_draft.

    notes: the questions that were skipped and why, each once.
    """

    def __init__(self, duo: Duo, options: GenerateOptions) -> None:
        self._duo, self._options = duo, options
        self.notes: dict[str, None] = {}

    def write(self, question: Question, arm: Arm) -> list[MeasuredAnswer]:
        """The answers to all turns that fit, with no caches. Raises DuoError: a model fails."""
        self.clear([question], 1)
        return self.answers(question, arm)

    def clear(self, questions: Sequence[Question], n: int) -> None:
        """Lets n slots hold a text that none of the questions begins with.

        Otherwise only the first arm of a round would evaluate the questions.
        """
        first = {self._duo.tokenize(q.turns[0], special=True)[0] for q in questions}
        mode: Mode = "plain" if self._duo.draft is None else "sync"
        for other in strangers(first, self._duo.target.n_vocab, n):
            self._duo.generate([other], max_tokens=2, temperature=0.0, ignore_eos=True, mode=mode, n_draft=1)

    def answers(self, question: Question, arm: Arm) -> list[MeasuredAnswer]:
        """The answers to all turns that fit. Several threads may call this. Raises DuoError: a model fails."""
        answers: list[MeasuredAnswer] = []
        prompt = ""
        for i, turn in enumerate(question.turns):
            prompt += turn
            ids = self._duo.tokenize(prompt, special=True)
            if not self._fits(len(ids)):
                what = f"turn {i + 1} of question {question.question_id}"
                self.notes[f"{what} was skipped: it does not fit the context of {self._n_ctx} tokens (-c)"] = None
                break
            answer, text = self._answer(ids, arm)
            answers.append(answer)
            # Tokenizers read C strings, so they cannot read a NUL that the model wrote.
            prompt += text.replace("\0", "") + "\n"
        return answers

    @property
    def _n_ctx(self) -> int:
        return self._duo.target.n_ctx

    def _fits(self, n_prompt: int) -> bool:
        # Without a limit (-1) a text ends at the end of the context.
        return n_prompt + max(1, self._options["max_tokens"]) <= self._n_ctx

    def _answer(self, prompt: list[int], arm: Arm) -> tuple[MeasuredAnswer, str]:
        options: GenerateOptions = {**self._options, "mode": arm.local_mode, "n_draft": arm.n_draft or "auto"}
        tokens: list[int] = []
        t_us: list[int] = []
        with self._duo.stream(prompt, **options) as stream:
            for chunk in stream:
                if chunk.token is not None:
                    tokens.append(chunk.token)
                    t_us.append(chunk.t_us)
        return MeasuredAnswer(tokens, t_us, stream.timings, stream.warning), stream.result.text
