"""/completion and /infill: llama-server's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp
from typing import TYPE_CHECKING, Any

from duo.chat.reading import Part
from duo.generation.pictures import words_of
from duo.generation.result import Chunk
from duo.server.formats.shape import AnswerFormat, Event
from duo.server.request_options import settings_shown
from duo.server.text import ServedText

if TYPE_CHECKING:
    from duo.model import Duo


class NativeShape(AnswerFormat):
    """fields: "a/b" picks b of a, and the answer has it as b; none: all. with_tokens: ids of the whole text."""

    done = False

    def __init__(
        self, *args: Any, duo: Duo, fields: Sequence[str] = (), with_tokens: bool = False, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._duo, self._fields, self._with_tokens = duo, fields, with_tokens

    def part(self, text: ServedText, part: Part) -> Iterator[Event]:
        yield "", self._part(text, part.content)

    def progress(self, text: ServedText, figures: Mapping[str, int]) -> Iterator[Event]:
        part = self._part(text, "")
        if "timings" in part:  # as far as the prompt has been read
            n = figures["processed"] - figures["cache"]
            part["timings"] |= {
                "cache_n": figures["cache"],
                "prompt_n": n,
                "prompt_ms": float(n and figures["time_ms"]),
            }
            part["timings"] |= {"predicted_n": 0, "predicted_ms": 0.0, "predicted_per_second": 0.0}
        yield "", {**part, "tokens_predicted": 0, "prompt_progress": figures}

    def _part(self, text: ServedText, content: str) -> dict[str, Any]:
        fresh = self.take_fresh(text)
        return {
            "index": text.index,
            "content": content,
            "tokens": [c.token for c in fresh],
            "stop": False,
            "id_slot": text.slot,
            "tokens_predicted": text.n_tokens,
            "tokens_evaluated": text.n_prompt,
            **self.per_token_fields(text, fresh),
            **self._probabilities(fresh),
        }

    def _probabilities(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        logprobs = [c.logprobs for c in chunks if c.logprobs is not None]
        if not logprobs:
            return {}
        shown = self.logprobs(logprobs)
        if self.texts[0].job.options["post_sampling_probs"]:
            shown = [_as_probability(t) for t in shown]
        return {"completion_probabilities": shown}

    def end(self, text: ServedText) -> Iterator[Event]:
        fresh = self.take_fresh(text)
        fields = self._all_fields(text, streamed=True)
        fields["tokens"] = [c.token for c in fresh]
        yield "", picked(fields, self._fields)

    def full_answer(self, text: ServedText) -> dict[str, Any]:
        """All of a text that has ended, for answers of another shape."""
        return self._all_fields(text, streamed=False)

    def _all_fields(self, text: ServedText, *, streamed: bool) -> dict[str, Any]:
        word = self.stopping_word(text)
        ended = text.chunks and not self.is_written(text.chunks[-1])
        fields = {
            "index": text.index,
            "content": "" if streamed else text.text,
            "tokens": [c.token for c in text.chunks] if self._with_tokens else [],
            "id_slot": text.slot,
            "stop": True,
            "model": self.dicts.model,
            "tokens_predicted": text.n_tokens,
            "tokens_evaluated": text.n_prompt,
            "generation_settings": {**settings_shown(text.job.options, self._duo), "seed": text.job.seed},
            "prompt": self._duo.decode(words_of(text.job.tokens), special=True),  # as the model reads it
            "has_new_line": "\n" in text.text,
            "truncated": self.is_truncated(text, self._duo.n_ctx()),
            "stop_type": "limit" if text.finish != "stop" else "word" if word and not ended else "eos",
            "stopping_word": word,
            "tokens_cached": text.n_prompt + max(0, text.n_tokens - 1),
            "timings": text.timings,
        }
        if not streamed:
            fields |= self._probabilities(text.chunks)
            if self.per_token:
                fields["duo"] = {"tokens": self.origins(text.chunks)}
        return fields

    def answer(self) -> Any:
        answers = [picked(self._all_fields(t, streamed=False), self._fields) for t in self.texts]
        return answers[0] if len(answers) == 1 else answers


def picked(answer: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """llama-server's response_fields: "a/b" takes b out of a."""
    if not fields:
        return answer
    out: dict[str, Any] = {}
    for path in fields:
        value: Any = answer
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            out[path] = value
    return out


def _as_probability(row: dict[str, Any]) -> dict[str, Any]:
    """As llama-server tells what the samplers leave: prob and top_probs."""
    top = row.pop("top_logprobs", None)
    row["prob"] = exp(row.pop("logprob"))
    return row if top is None else {**row, "top_probs": [_as_probability(t) for t in top]}
