"""Draws the results of run_kernels.py: milliseconds of a pass by width, with a panel for each weight type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLORS = {"stock": "#9a9a9a", "duo": "#0b6fc2"}
LIMIT = "#c2410b"


def draw(found: dict[str, Any], svg: Path) -> None:
    types = found["types"]
    n_columns = min(4, len(types))
    n_rows = -(-len(types) // n_columns)
    # Keep text as text: the file is smaller, and sharp at any size.
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "duo", "font.family": "sans-serif", "font.size": 9}):
        figure, grid = plt.subplots(
            n_rows, n_columns, figsize=(2.6 * n_columns, 2.2 * n_rows + 0.7), sharex=True, squeeze=False, facecolor="w"
        )
        for axes in grid.flat[len(types) :]:
            axes.set_visible(False)
        for i, (axes, (name, one)) in enumerate(zip(grid.flat, types.items(), strict=False)):
            widths = sorted(n for n in map(int, one["widths"]) if n <= 16)
            rows = [one["widths"][str(n)] for n in widths]
            for side, color in COLORS.items():
                axes.plot(widths, [row[side]["median"] for row in rows], lw=1.4, color=color, label=side)
                low, high = ([row[side][end] for row in rows] for end in ("low", "high"))
                axes.fill_between(widths, low, high, color=color, alpha=0.2, lw=0)
            axes.axhline(one["limit_ms"], ls="--", lw=1, color=LIMIT, label="weights read once")
            axes.set_title(name, fontsize=10)
            axes.set_ylim(bottom=0)
            axes.set_xticks([1, 4, 8, 16])
            axes.locator_params(axis="y", nbins=4)
            axes.grid(alpha=0.25, lw=0.5)
            axes.spines[["top", "right"]].set_visible(False)
            if i % n_columns == 0:
                axes.set_ylabel("ms per pass")
            if i + n_columns >= len(types):
                axes.set_xlabel("tokens in the pass")
                axes.tick_params(labelbottom=True)
        handles, labels = grid.flat[0].get_legend_handles_labels()
        low, _, high = found["cores"].partition("-")
        n_cores = int(high or low) - int(low) + 1
        figure.legend(handles, labels, loc="upper right", ncols=3, frameon=False)
        threads = f"{n_cores} thread{'s' if n_cores > 1 else ''}"
        figure.suptitle(f"{found['machine'].split(',')[0]}, {threads}, {found['kernels']}", x=0.01, ha="left", size=10)
        figure.tight_layout(rect=(0, 0, 1, 0.98))
        figure.savefig(svg, format="svg", metadata={"Date": None}, facecolor="white")
        plt.close(figure)
