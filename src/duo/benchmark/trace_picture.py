"""The picture of a trace: the target's lane above the draft's. Needs matplotlib."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from duo.benchmark.trace import Span, busy, clip, intersection, overlap, window
from duo.errors import BadValueError
from duo.generation.trace_writer import LANES, Event

Colour = str | tuple[float, float, float]

WIDTH, HEIGHT = 12.0, 3.4  # inches
LEFT, SPREAD = 0.055, 0.93  # left edge and width of the lanes, in widths of the figure
BASE = {"target": 1.25, "draft": 0.15}  # lower edge of each lane; LANE is the height of both
LANE, MARKER_Y, TOP = 0.9, 2.33, 2.5

GREY, PLAIN, PROMPT = "#5b6570", "#c5ccd3", "#8d99a6"
HIDDEN, EXPOSED, MISS = "#3a9d78", "#f0883e", "#c8323c"
NONE_ACCEPTED, ALL_ACCEPTED = (0.80, 0.89, 0.97), (0.05, 0.30, 0.58)


def draw(
    events: Sequence[Event],
    out: Path,
    *,
    title: str | None = None,
    start_ms: float | None = None,
    end_ms: float | None = None,
) -> None:
    """Draws both lanes as .svg or .png with matplotlib. Times count from the first event. Raises BadValueError."""
    if out.suffix.lower() not in (".svg", ".png"):
        raise BadValueError(f"cannot draw {out}: the name must end in .svg or .png")
    if not events:
        raise BadValueError("the trace has no events to draw")
    origin, (lo, hi) = min(event.t0_us for event in events), window(events, start_ms, end_ms)
    moved = [replace(event, t0_us=event.t0_us - origin, t1_us=event.t1_us - origin) for event in events]
    picture(moved, (lo - origin, max(hi, lo + 1) - origin), title).savefig(out)


def picture(events: Sequence[Event], span: Span, title: str | None) -> Figure:
    """Draws the events in the span (us); hits and misses are marked at the time of the verdict."""
    shown = clip(events, *span)
    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=150)
    axes = figure.add_axes((LEFT, 0.27, SPREAD, 0.52), xlim=(span[0] / 1000, span[1] / 1000), ylim=(0, TOP))
    axes.set_xlabel("ms since the trace began", fontsize=8, color=GREY)
    axes.set_yticks([BASE[lane] + LANE / 2 for lane in LANES], LANES, fontsize=10)
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)
    axes.tick_params(axis="x", labelsize=8, color=GREY, labelcolor=GREY)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    _draw_bars(axes, shown, inches_per_us=SPREAD * WIDTH / (span[1] - span[0]))
    _draw_outcomes(axes, events, span)
    _add_legend(axes, shown)
    if title is not None:
        figure.text(LEFT, 0.92, title, fontsize=11, weight="bold", parse_math=False)
    figure.text(LEFT, 0.845, _caption(shown), fontsize=9, color=GREY)
    return figure


def _caption(events: Sequence[Event]) -> str:
    part = overlap(events)
    caption = f"In this part the target is busy {part.target_busy_share:.0%} of the time"
    if part.draft_busy_us:
        caption += f", the draft {part.draft_busy_share:.0%}; {part.hidden_share:.0%} of its work is hidden"
    return caption + "."


def _colour(event: Event) -> Colour:
    if event.kind == "verify" and event.n_drafted:
        share = event.n_accepted / event.n_drafted
        r, g, b = (none + (full - none) * share for none, full in zip(NONE_ACCEPTED, ALL_ACCEPTED, strict=True))
        return r, g, b
    return {"verify": PLAIN, "draft": EXPOSED}.get(event.kind, PROMPT)


def _draw_bars(axes: Axes, events: Sequence[Event], inches_per_us: float) -> None:
    slots = sorted({event.slot for event in events})
    height = LANE / max(len(slots), 1)  # a strip for each slot, so that simultaneous passes do not cover each other
    corners: list[list[tuple[float, float]]] = []
    colours: list[Colour] = []
    ends: list[tuple[float, float]] = []  # gaps that separate consecutive passes

    def bar(t0_us: int, t1_us: int, y: float, high: float, colour: Colour) -> None:
        x0, x1 = t0_us / 1000, t1_us / 1000
        corners.append([(x0, y), (x0, y + high), (x1, y + high), (x1, y)])
        colours.append(colour)

    for event in events:
        y = BASE[event.lane] + height * slots.index(event.slot)
        inches = (event.t1_us - event.t0_us) * inches_per_us
        if event.kind == "wait":
            bar(event.t0_us, event.t1_us, y + 0.47 * height, 0.06 * height, PLAIN)
            continue
        bar(event.t0_us, event.t1_us, y, height, _colour(event))
        if inches > 0.03:
            ends.append((event.t1_us / 1000, y))
        label = f"{event.n_accepted}/{event.n_drafted}"
        if event.kind == "verify" and event.n_drafted and inches > 0.058 * len(label) and height > 0.15:
            ink = "white" if 2 * event.n_accepted > event.n_drafted else "black"
            middle = (event.t0_us + event.t1_us) / 2000
            axes.text(middle, y + height / 2, label, fontsize=7, color=ink, ha="center", va="center")
    steps, target = [event for event in events if event.kind == "draft"], busy(events, "target")
    for i, slot in enumerate(slots):
        for t0_us, t1_us in intersection(busy((e for e in steps if e.slot == slot), "draft"), target):
            bar(t0_us, t1_us, BASE["draft"] + height * i, height, HIDDEN)
    axes.add_collection(PolyCollection(corners, facecolors=colours, linewidths=0), autolim=False)
    axes.vlines([x for x, _ in ends], [y for _, y in ends], [y + height for _, y in ends], "white", linewidth=0.8)


def _draw_outcomes(axes: Axes, events: Sequence[Event], span: Span) -> None:
    if all(event.lane == "target" for event in events):
        return  # without a draft every verification is a miss
    verdicts = [event for event in events if event.kind == "verify" and span[0] < event.t1_us <= span[1]]
    for hit, marker, colour in ((True, "^", HIDDEN), (False, "x", MISS)):
        times = [event.t1_us / 1000 for event in verdicts if event.hit is hit]
        label = "hit" if hit else "miss"
        axes.plot(times, [MARKER_Y] * len(times), marker, color=colour, markersize=4, label=label, clip_on=False)


def _add_legend(axes: Axes, events: Sequence[Event]) -> None:
    kinds = {event.kind for event in events}
    n_drafted = [event.n_drafted for event in events if event.kind == "verify"]
    entries: list[tuple[bool, Colour, str]] = [
        ("wait" in kinds, PLAIN, "waiting"),
        ("prompt" in kinds, PROMPT, "prompt"),
        (0 in n_drafted, PLAIN, "verify, nothing drafted"),
        (any(n_drafted), NONE_ACCEPTED, "verify, none accepted"),
        (any(n_drafted), ALL_ACCEPTED, "verify, all accepted"),
        ("draft" in kinds, HIDDEN, "draft, hidden"),
        ("draft" in kinds, EXPOSED, "draft, target idle"),
    ]
    for present, colour, label in entries:
        if present:
            marker = "_" if label == "waiting" else "s"
            axes.plot([], [], marker, color=colour, markersize=7, markeredgewidth=2, label=label)
    handles, labels = axes.get_legend_handles_labels()
    style = {"frameon": False, "fontsize": 8, "handlelength": 1.2, "columnspacing": 1.6}
    axes.figure.legend(handles, labels, loc="lower center", ncols=len(labels), **style)
