"""The worst result beside the best one, of the measurements of `make bench`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks import real_tables
from benchmarks.run_defaults import SPANS

HEAD = "| what is compared | worst | median | best | of |\n|---|---|---|---|---|"


class Row(NamedTuple):
    """Ratios of speeds; above 1: the first one is faster."""

    what: str
    ratios: Sequence[float]
    of: str
    n: int | None = None  # of how many these are the least, the middle and the greatest; None: all are here

    def markdown(self) -> str:
        low, middle, high = min(self.ratios), statistics.median(self.ratios), max(self.ratios)
        return f"| {self.what} | {low:.2f} | {middle:.2f} | {high:.2f} | {self.n or len(self.ratios)} {self.of} |"


def of_real(d: dict[str, Any]) -> Iterator[Row]:
    for cell in d["cells"]:
        where, turns = real_tables.title(cell), real_tables.best(cell, real_tables.TURNS)
        for what, base in (
            ("llama.cpp's plain loop", real_tables.LLAMA),
            (f"its own speculation ({turns.rpartition(' ')[2]})", turns),
            ("duo, target alone", real_tables.ALONE),
            ("duo's best turn-taking", real_tables.best(cell, real_tables.SYNC)),
        ):
            found = real_tables.ratios(cell, real_tables.ASYNC, base)
            yield Row(f"real pair, {where[0].lower()}{where[1:]}: async / {what}", found, "questions")


def of_races(d: dict[str, Any]) -> Iterator[Row]:
    yield Row(
        "default options, c = 0.01: async / the target alone", [r["ratio"] for r in d["races"]], "texts (`duo race`)"
    )


def of_defaults(d: dict[str, Any]) -> Iterator[Row]:
    for cell in d["cells"]:
        arms = cell["arms"]
        rivals = [a for name, a in arms.items() if name == "plain alone" or name.startswith("sync")]
        to_best: dict[str, list[float]] = {"async": [], "async, second run": []}
        to_alone: dict[str, list[float]] = {name: [] for name in to_best}
        for span in SPANS:
            best = max((a["speeds"][span] for a in rivals), key=statistics.median)
            for name in to_best.keys() & arms.keys():
                ours, alone = arms[name]["speeds"][span], arms["plain alone"]["speeds"][span]
                to_best[name] += [x / y for x, y in zip(ours, best, strict=True)]
                to_alone[name] += [x / y for x, y in zip(ours, alone, strict=True)]
        for name in (n for n in to_best if to_best[n]):
            where = f"default options, c = {cell['cell']['c']}: {name} / "
            yield Row(where + "the target alone", to_alone[name], "spans of fresh processes")
            yield Row(where + "the better of that and the best turn-taking", to_best[name], "of the same")


def of_pair(d: dict[str, Any]) -> Iterator[Row]:
    rows = {r["arm"]: r for r in d["rows"]}
    for what, name in (
        ("async", "async auto, duo kernels"),
        ("async, a draft that is never right", "async auto, useless draft, duo kernels"),
        ("async, stock kernels", "async auto, stock kernels"),
    ):
        found = rows[f"duo {name}"]["ratios"]
        yield Row(f"pinned: duo, {what} / llama.cpp's plain loop, the target's core", found, "texts")
    ours = rows["duo async auto, duo kernels"]["speeds"]
    best = max((r for name, r in rows.items() if name.startswith("llama.cpp")), key=lambda r: float(r["tokens_per_s"]))
    ratios = [x / y for x, y in zip(ours, best["speeds"], strict=True)]
    arm = best["arm"].removeprefix("llama.cpp ")
    yield Row(f"pinned: duo, async / the best of llama.cpp's arms ({arm})", ratios, "texts")


def of_devices(d: dict[str, Any]) -> Iterator[Row]:
    for cost, run in d.items():
        for p in run["placements"]:
            for s in p["summaries"]:
                if s["mode"] == "async" and s["category"] == "all":
                    what = f"{p['name']}, c = {cost}: async / the target alone on one core"
                    yield Row(what, [s["to_plain"][k] for k in ("low", "median", "high")], "texts", s["n_answers"])


def of_texts(d: dict[str, Any]) -> Iterator[Row]:
    for key, other in (("to_plain", "plain"), ("to_best_sync", "batched turn-taking")):
        ratios = [s[key] for s in d["summaries"] if s["mode"] == "async" and s[key] is not None]
        if ratios:
            yield Row(f"1 to 4 texts at once, default options, c = 0.2: async / {other}", ratios, "numbers of texts")


def of_remote(d: dict[str, Any]) -> Iterator[Row]:
    host = next(r for r in d["rows"] if r["arm"].startswith("draft host"))
    yield Row("draft host on loopback / draft in this process, c = 0.2", [host["to_in_process"]], "median")


def of_synthetic(d: dict[str, Any]) -> Iterator[Row]:
    for grid, cells in d["cells"].items():
        yield Row(
            f"scripted models, grid {grid}: async / best turn-taking", [c["async_to_sync"] for c in cells], "cells"
        )
        yield Row(f"scripted models, grid {grid}: async / plain", [c["async_to_plain"] for c in cells], "cells")


def of_kernels(d: dict[str, Any]) -> Iterator[Row]:
    n = len(range(int(d["cores"].split("-")[0]), int(d["cores"].split("-")[-1]) + 1))
    for width in ("1", "4", "8", "512"):
        ratios = [t["widths"][width]["stock_to_duo"]["median"] for t in d["types"].values() if width in t["widths"]]
        if ratios:
            tokens = "token" if width == "1" else "tokens"
            yield Row(f"duo's kernels / stock, {width} {tokens}, {n} core{'s' * (n > 1)}", ratios, "weight types")


OF = {"real": of_real, "race": of_races, "defaults": of_defaults, "pair": of_pair, "devices": of_devices,
      "texts": of_texts, "remote": of_remote, "synthetic": of_synthetic, "kernels": of_kernels,
      "kernels2": of_kernels}  # fmt: skip


def table(found: dict[str, dict[str, Any]]) -> str:
    """found: the JSON of each step by its name."""
    rows = [row.markdown() for name, of in OF.items() if name in found for row in of(found[name])]
    return "\n".join([HEAD, *rows])
