"""An animated SVG of a race, from the recorded times of its tokens.

duo race --json > race.json
python tools/race_svg.py race.json docs/race.svg

Both texts are replayed at the speed at which they were written, and begin at once. SMIL animates them, because a page
that shows the file as a picture runs no script. A program that animates nothing shows the end of the race.
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path
from typing import Any

COLUMNS, LINE = 46, 17  # characters of a line, pixels between two lines
CHARACTER = 7.25  # pixels, of the widest usual font with fixed width
MARGIN, TOP, BOTTOM = 16, 76, 78
HOLD_S = 5.0  # the end stays this long
TICK_S = 0.1
INK, DIM, GREEN, BACK, FRAME = "#e6edf3", "#8b949e", "#3fb950", "#0d1117", "#30363d"
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace"
GUESSED = ' class="g"'

Piece = tuple[float, str, bool]


def wrapped(pieces: list[Piece]) -> list[list[Piece]]:
    """The pieces of each line. A piece is cut where a line ends; words are whole."""
    text = "".join(p[1] for p in pieces)
    owner = [p for p in pieces for _ in p[1]]
    lines: list[list[Piece]] = []
    start = 0
    while start < len(text):
        end = min(len(text), start + COLUMNS)
        newline = text.find("\n", start, end)
        blank = text.rfind(" ", start + 1, end + 1) if end < len(text) else -1
        stop = newline if newline >= 0 else blank if blank > 0 else end
        line: list[Piece] = []
        for i in range(start, stop):
            at, _, guessed = owner[i]
            if line and owner[i] is owner[i - 1]:
                line[-1] = (at, line[-1][1] + text[i], guessed)
            else:
                line.append((at, text[i], guessed))
        lines.append(line)
        start = stop + (stop < len(text) and text[stop] in " \n")
    return lines


class Picture:
    """The animation. All of it repeats after `period` seconds."""

    def __init__(self, race: dict[str, Any]) -> None:
        self.race = race
        self.lanes = [race["alone"], race["pair"]]
        self.period = max(lane["seconds"] for lane in self.lanes) + HOLD_S
        self.lines = [wrapped([(p[0], p[1], p[2]) for p in lane["pieces"]]) for lane in self.lanes]
        self.lane_width = 2 * MARGIN + COLUMNS * CHARACTER
        self.width = round(2 * self.lane_width)
        self.height = TOP + LINE * max(map(len, self.lines)) + BOTTOM

    def shown(self, since: float, until: float | None = None) -> str:
        """Visible from one time of each round to another."""
        times = [0.0, since / self.period] + ([] if until is None else [until / self.period])
        values = ["0", "1"] + ([] if until is None else ["0"])
        if since <= 0:
            times, values = times[1:], values[1:]
        return (
            f'<animate attributeName="fill-opacity" values="{";".join(values)}" keyTimes="'
            f'{";".join(f"{t:.4f}".rstrip("0").rstrip(".") or "0" for t in times)}" calcMode="discrete" '
            f'dur="{self.period:.2f}s" repeatCount="indefinite"/>'
        )

    def text(self, x: float, y: float, inner: str, attributes: str = "") -> str:
        return f'<text x="{x:g}" y="{y:g}"{" " * bool(attributes)}{attributes}>{inner}</text>'

    def lane(self, n: int) -> list[str]:
        lane, x = self.lanes[n], MARGIN + n * self.lane_width
        title = ("plain", "the target alone") if n == 0 else (lane["name"], "target and draft")
        out = [
            f'<rect x="{x - 8:g}" y="34" width="{self.lane_width - 16:g}" height="{self.height - 34 - 50}" rx="6" '
            f'fill="none" stroke="{FRAME}"/>',
            self.text(x, 53, f'<tspan font-weight="bold">{escape(title[0])}</tspan> {escape(title[1])}'),
        ]
        for i, line in enumerate(self.lines[n]):
            words = "".join(
                f"<tspan{GUESSED if guessed else ''}>{escape(text)}{self.shown(at)}</tspan>"
                for at, text, guessed in line
            )
            out.append(self.text(x, TOP + LINE * i, words))
        return [*out, *self.stopwatch(lane, x)]

    def stopwatch(self, lane: dict[str, Any], x: float) -> list[str]:
        """A tick for each tenth of a second, a bar of the tokens, and the result at the end."""
        y, end = self.height - 62, lane["seconds"]
        right = x + self.lane_width - 2 * MARGIN
        at_end = 'text-anchor="end" '
        n_ticks = int(end / TICK_S)
        ticks = [
            self.text(right, y, f"{i * TICK_S:.1f} s{self.shown(i * TICK_S, min(end, (i + 1) * TICK_S))}",
                      at_end + 'fill-opacity="0"')
            for i in range(n_ticks + 1)
        ]  # fmt: skip
        done = f"{end:.2f} s, {lane['tokens']} tokens, {lane['tokens_per_s']:.1f} tokens/s"
        result = self.text(right, y, escape(done) + self.shown(end), at_end + 'font-weight="bold"')
        span, steps = self.lane_width - 2 * MARGIN, 24
        n, pieces = len(lane["pieces"]), lane["pieces"]
        marks = [(pieces[max(0, round(n * k / steps) - 1)][0] / self.period, span * k / steps) for k in range(1, steps)]
        marks = [(0.0, 0.0), *marks, (end / self.period, span), (1.0, span)]
        bar = (
            f'<rect x="{x:g}" y="{y - 24:g}" width="{span:g}" height="3" rx="1" fill="{DIM}"><animate '
            f'attributeName="width" values="{";".join(f"{w:.0f}" for _, w in marks)}" '
            f'keyTimes="{";".join(f"{t:.4f}" for t, _ in marks)}" dur="{self.period:.2f}s" '
            'repeatCount="indefinite"/></rect>'
        )
        return [bar, *ticks, result]

    def svg(self) -> str:
        race = self.race
        same = "yes" if race["same_text"] else "no"
        title = f"{race['pair']['name']} wrote {race['ratio']:.2f} times as many tokens per second; same text: {same}"
        caption = (
            f"{race['machine'].split(',')[0]}, {race['cores']}. Written one after the other, replayed together in "
            "real time. Green: guessed by the draft."
        )
        end = max(lane["seconds"] for lane in self.lanes)
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="{FONT}" '
            f'font-size="12" fill="{INK}" xml:space="preserve">',
            f"<title>{escape(title)}</title>",
            f"<style>.g{{fill:{GREEN}}}</style>",
            f'<rect width="{self.width}" height="{self.height}" rx="8" fill="{BACK}"/>',
            self.text(MARGIN - 8, 22, f'<tspan fill="{DIM}">$ duo race</tspan>  <tspan font-style="italic">'
                      f"{escape(race['prompt'])}</tspan>"),
            *self.lane(0), *self.lane(1),
            self.text(MARGIN - 8, self.height - 30, escape(title) + self.shown(end), 'font-weight="bold"'),
            self.text(MARGIN - 8, self.height - 12, escape(caption), f'fill="{DIM}" font-size="10"'),
            "</svg>", "",
        ])  # fmt: skip


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: race_svg.py RACE.json OUT.svg")
    race = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    Path(sys.argv[2]).write_text(Picture(race).svg(), "utf-8")


if __name__ == "__main__":
    main()
