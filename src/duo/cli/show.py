"""What the user sees: warnings, the coloured tokens, the figures at the end."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from duo.cli.progress import progress
from duo.errors import DuoError
from duo.models.paths import model_bytes
from duo.support.wording import plural

if TYPE_CHECKING:
    from duo.chat.reading import Part
    from duo.compat.llama_cpp.answer import Reading
    from duo.generation.result import Chunk, Result
    from duo.generation.stream import Stream
    from duo.generation.timings import Timings
    from duo.model import Duo
    from duo.options.generate import GenerateOptions
    from duo.placement.fit import PairPlacement

GREEN, DIM, PLAIN = "\x1b[32m", "\x1b[2m", "\x1b[0m"


def wants_color(choice: str, stream: TextIO) -> bool:
    """-co on|off|auto; auto: on a terminal, unless NO_COLOR is set (no-color.org)."""
    if choice == "auto":
        return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return choice == "on"


@contextmanager
def loading(*, quiet: bool) -> Iterator[Callable[[str, float], None] | None]:
    """A progress bar while models load, if loading takes more than 0.5 s."""
    if quiet:
        yield None
        return
    with progress("bytes", lines=True, after_s=0.5) as show:

        def draw(path: str, share: float) -> None:
            n = model_bytes(path)
            show(f"loading {Path(path).name}", share * n, n)

        yield draw


def live_output(*, json: bool) -> TextIO:
    """Where a text is written while it grows. json: standard output is for JSON alone, so that only who looks at a
    terminal sees the text before its end."""
    if not json:
        return sys.stdout
    return sys.stderr if sys.stderr.isatty() else io.StringIO()


class TokenPrinter:
    """Writes chunks as they arrive; tokens that the draft guessed are green."""

    def __init__(self, out: TextIO, color: bool, reading: Reading | None = None, *, end: str = "\n") -> None:
        """reading: what tells thoughts from the answer. Thoughts are for a terminal only: dimmed, or with a heading.
        end: comes after a whole text."""
        self._out, self._color, self._now, self._end = out, color, "", end
        self._n = 0  # characters written
        self._reading, self._thinks = reading, False
        self._shows_thoughts = color or out.isatty()

    def _set(self, style: str) -> str:
        if not self._color or style == self._now:
            return ""
        before, self._now = self._now, style
        return (PLAIN if before else "") + style

    def __call__(self, chunk: Chunk) -> None:
        if self._reading is not None:
            self._show(self._reading.add(chunk), chunk.from_draft)
        elif chunk.text:
            self._write(GREEN if chunk.from_draft else "", chunk.text)
        self._n += len(chunk.text)

    def _write(self, style: str, text: str) -> None:
        self._out.write(self._set(style) + text)
        self._out.flush()

    def _show(self, parts: list[Part], from_draft: bool) -> None:
        for p in parts:
            if p.reasoning and self._shows_thoughts:
                if not self._thinks and not self._color:
                    self._write("", "(thinking)\n")
                self._thinks = True
                self._write(DIM, p.reasoning)
            if p.content:
                if self._thinks:
                    self._write("", "\n\n")
                self._thinks = False
                self._write(GREEN if from_draft else "", p.content)

    def write(self, stream: Stream) -> DuoError | None:
        """Writes a whole text as it arrives; Ctrl-C stops it. Returns the error that ended it, with the text so far.

        Raises DuoError: an error without a text.
        """
        try:
            for chunk in stream:
                self(chunk)
        except KeyboardInterrupt:
            stream.close()
        except DuoError as e:
            if e.result is None:
                raise
            from duo.generation.result import Chunk

            self(Chunk(e.result.text[self._n :]))  # the text that no chunk has held yet
            return e
        finally:
            if self._reading is not None:
                self._show(self._reading.finish(), False)
            self._out.write(self._set("") + self._end)
            self._out.flush()
        return None


def _share(n: int, of: int) -> str:
    return f"{100 * n / max(1, of):.0f}%"


def _of_guesses(t: Timings) -> Iterator[tuple[str, str]]:
    """How right they were."""
    if t["draft_n"] and t["draft_acceptance_by_position"]:
        by_position = " ".join(f"{100 * a:.0f}" for a in t["draft_acceptance_by_position"])
        yield "acceptance", f"{100 * t['draft_acceptance']:.0f}% ({t['draft_n_accepted']} of {t['draft_n']} drafted)"
        yield "mean accepted length", f"{t['draft_mean_length']:.2f} over {t['draft_rounds']} verifications"
        yield "acceptance by position", f"{by_position} %"
        yield "rolled back", f"{100 * t['draft_rollback_share']:.0f}% of the best path's tokens"
    if t["draft_ngram_n"]:
        yield "n-grams", f"{t['draft_ngram_n_accepted']} of {t['draft_ngram_n']} accepted"
    if t["passes_at_rest_n"]:
        yield "rest", f"{t['passes_at_rest_n']} of {t['target_passes_n']} passes without speculation" + _why(t)


def _why(t: Timings) -> str:
    """Words for whether guesses pay: the speeds that the planner expects at the end, with them and without."""
    plain, *others = (t["promised_per_second"][way] for way in ("plain", "by_turn", "ahead"))
    guessing = max(others)
    if not guessing or not plain:
        return ": too little was measured to say whether guesses pay"
    return f": at the end guesses promise {guessing:.1f} tokens/s, and {plain:.1f} come without"


def _of_models(t: Timings) -> Iterator[tuple[str, str]]:
    """Words for the work of the target and, if it took part, of the draft."""
    busy, hidden = f"target {100 * t['target_busy_share']:.0f}%", t.get("draft_hidden_share")
    if not t.get("draft_nodes_n"):
        yield "busy", f"{busy} of the time"
        return
    yield "busy", f"{busy}, draft {100 * t['draft_busy_share']:.0f}% of the time"
    yield "draft time hidden", "-" if hidden is None else f"{100 * hidden:.0f}%"
    yield "hits", f"after {_share(t['draft_hit_n'], t['target_passes_n'])} of the passes the next guesses were ready"


def figures(r: Result) -> list[tuple[str, str]]:
    """Name and value for each line of the panel."""
    t = r.timings
    first = f"{t['ttft_ms']:.0f} ms" if t["predicted_n"] else "-"
    lines = [
        ("tokens", f"{t['predicted_n']} ({r.finish_reason})"),
        ("speed", f"{t['predicted_per_second']:.1f} tokens/s"),
        ("time to first token", f"{first} ({t['prompt_n']} prompt tokens, {t['cache_n']} cached)"),
    ]
    if "draft_n" in t:
        lines += _of_guesses(t)
    lines += _of_models(t)
    if "network_sent_bytes" in t:
        sent, received = (
            f"{n / 1e3:,.1f} kB {way}"
            for way, n in (("sent", t["network_sent_bytes"]), ("received", t["network_received_bytes"]))
        )
        lost = f", lost {plural(t['network_lost_n'], 'time')}" if t["network_lost_n"] else ""
        lines.append(("network", f"round trip {t['network_round_trip_ms']:.1f} ms, {sent}, {received}{lost}"))
    return lines


def show_figures(r: Result, err: TextIO) -> None:
    """A panel on a terminal, otherwise plain lines."""
    if not err.isatty():
        for name, value in figures(r):
            print(f"{name}: {value}", file=err)
        return
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for name, value in figures(r):
        grid.add_row(name, value)
    Console(file=err).print(Panel(grid, title="duo", title_align="left", expand=False))


def as_json(r: Result) -> str:
    """The text and its figures as one line of JSON."""
    return json.dumps(
        {
            "text": r.text,
            "finish_reason": r.finish_reason,
            "seed": r.seed,
            "prompt_tokens": r.prompt_tokens,
            "completion_tokens": len(r.tokens),
            "warning": r.warning or None,
            "timings": r.timings,
        }
    )


def note_placement(placement: PairPlacement | None) -> None:
    """Prints what -ngl auto has chosen, only on a terminal, unless all layers are on devices."""
    if placement is not None and not placement.auto_is_all and sys.stderr.isatty():
        warn(placement.line())


def note_texts(d: Duo) -> None:
    """Prints what -np auto has chosen, only on a terminal."""
    if d.options["n_parallel"] == "auto" and sys.stderr.isatty():
        warn(f"-np auto: {plural(d.n_parallel, 'text')} at once, of {d.local_model.n_ctx} tokens each")


def warn_of_schema(o: GenerateOptions) -> None:
    """Names the keywords of the JSON schema that duo does not enforce."""
    from duo.grammar.schema import not_enforced

    if passed_over := not_enforced(o["json_schema"]):
        are = "is" if len(passed_over) == 1 else "are"
        warn(f"{', '.join(passed_over)} in the JSON schema {are} not enforced; check the answer yourself")


def warn(message: str) -> None:
    print(f"duo: {message}", file=sys.stderr)
