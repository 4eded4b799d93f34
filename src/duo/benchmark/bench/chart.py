"""The chart of a run: speed-up over plain by category, best sync next to each async arm. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten

from duo.benchmark.bench.arms import Arm
from duo.benchmark.bench.measures import ALL, Summary
from duo.benchmark.bench.report import shown_by_category
from duo.errors import BadValueError, DuoError, MissingPackageError

SYNC, ASYNC, GREY = "#9a9a9a", ("#0b6fc2", "#6db3e8", "#123f66", "#3a9d78", "#a3d4c1"), "#5b6570"


def check_chart(path: Path | None) -> None:
    """Before a long run. Raises BadValueError (neither .svg nor .png) and MissingPackageError (matplotlib)."""
    if path is None:
        return
    if path.suffix.lower() not in (".svg", ".png"):
        raise BadValueError(f"the chart {path} is neither .svg nor .png; change the name")
    if find_spec("matplotlib") is None:
        raise MissingPackageError("a chart needs matplotlib; install it with: pip install 'duo-llama[bench]'")


def draw(summaries: Sequence[Summary], sync: Arm | None, path: Path, title: str = "") -> None:
    """Writes the chart. Raises DuoError: there is nothing to compare, no matplotlib, or the file cannot be written."""
    check_chart(path)
    arms = shown_by_category(summaries, sync)
    if not arms:
        raise BadValueError("nothing to draw: no sync or async arm was measured; leave out --chart or change --modes")
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_bar = {(s.category, s.arm): s.to_plain for s in summaries}
    # The total is last.
    categories = sorted(dict.fromkeys(s.category for s in summaries), key=lambda c: c == ALL)
    n_bars = len(categories) * len(arms)
    # Text stays text in an SVG, which is smaller and sharp at any size.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "duo", "font.size": 9}):
        figure = Figure(figsize=(max(6.0, 1.5 + 0.2 * n_bars + 0.3 * len(categories)), 3.6), dpi=150)
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        width = 0.8 / len(arms)
        asyncs = [arm for arm in arms if arm.mode == "async"]
        for i, arm in enumerate(arms):
            spreads = [(x, s) for x, c in enumerate(categories) if (s := by_bar.get((c, arm))) is not None]
            color = SYNC if arm.mode == "sync" else ASYNC[asyncs.index(arm) % len(ASYNC)]
            at = [x - 0.4 + width * (i + 0.5) for x, _ in spreads]
            heights = [s.median for _, s in spreads]
            name = f"best sync ({arm.n_draft})" if arm.mode == "sync" else arm.name
            axes.bar(at, heights, 0.9 * width, color=color, label=name)
            axes.vlines(at, [s.low for _, s in spreads], [s.high for _, s in spreads], color="black", lw=0.8)
        axes.axhline(1.0, color=GREY, lw=0.8, ls="--", zorder=0)
        long = max(map(len, categories)) > 8 and len(categories) > 3
        axes.set_xticks(range(len(categories)), categories)
        axes.tick_params(axis="x", length=0)
        if long:
            for label in axes.get_xticklabels():
                label.set(rotation=30, ha="right", rotation_mode="anchor")
        axes.set_xlim(-0.6, len(categories) - 0.4)
        axes.set_ylabel("speed-up over plain")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(4, len(arms)), frameon=False, borderaxespad=0.2)
        figure.text(0.02, 0.97, shorten(title, 80, placeholder=" ..."), va="top", color=GREY, parse_math=False)
        figure.tight_layout(rect=(0, 0, 1, 0.95 if title else 1))
        kind = path.suffix.lower()[1:]
        try:
            figure.savefig(path, format=kind, metadata={"Date": None} if kind == "svg" else None, facecolor="white")
        except OSError as e:
            raise DuoError(f"the chart {path} cannot be written ({e.strerror}); choose another file") from None
