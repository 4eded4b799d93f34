"""The page of `make bench`: all tables of one commit on one machine.

python -m benchmarks.report_page    writes report.md again, from results/report.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import extremes
from benchmarks.about_machine import in_words
from benchmarks.run_devices import ROWS, rows_of
from benchmarks.steps import LEFT_OUT, STEPS, Step

from duo.support.other_load import QUIET_CORES


def of_texts(d: dict[str, Any]) -> str:
    lines = [
        "| texts at once | way | tokens/s | to one by one | to plain | to turn-taking | equal texts |",
        "|---" * 7 + "|",
    ]
    for s in d["summaries"]:
        ratios = ("" if s[k] is None else f"{s[k]:.2f}" for k in ("to_one_by_one", "to_plain", "to_best_sync"))
        speed, equal = s["tokens_per_s"]["median"], f"{s['equal_share']:.0%}"
        lines.append(f"| {s['slots']} | {s['arm']} | {speed:.1f} | {' | '.join(ratios)} | {equal} |")
    return "\n".join(lines)


def of_devices(d: dict[str, Any]) -> str:
    heads = f"| {' | '.join(ROWS)} |\n{'|---' * len(ROWS)}|"
    parts = []
    for cost, run in d.items():
        parts += [f"c = {cost}", "\n".join([heads, *(f"| {' | '.join(row)} |" for row in rows_of(run))])]
    return "\n\n".join(parts)


def of_servers(d: dict[str, Any]) -> str:
    heads = "server | clients | tokens/s | first token, ms: median, p95 | later tokens, ms | errors | texts as plain's"
    lines = [f"| {heads} |", "|---" * 7 + "|"]
    for r in d["rows"]:
        speed = max(r["tokens_per_s"], default=0.0)
        first, later = (
            "" if r[k] is None else f"{r[k][0]:.0f}, {r[k][1]:.0f}" for k in ("ttft_ms_p50_p95", "tpot_ms_p50_p95")
        )
        same = "" if r["texts_as_duo_plain"] is None else f"{r['texts_as_duo_plain']:.0%}"
        lines.append(
            f"| {r['server']} | {r['clients']} | {speed:.1f} | {first} | {later} | {len(r['errors'])} | {same} |"
        )
    return "\n".join(lines)


def of_company(d: dict[str, Any]) -> str:
    fair, joining = d["fairness"], d["joining"]
    return "\n".join([
        "| what | figure | worst of the rounds |", "|---|---|---|",
        f"| one text alone, four slots / one slot | {d['alone']['ratio']:.2f} | |",
        f"| slowest of four equal texts / their mean | {fair['median']:.2f} | {min(fair['slowest_to_mean']):.2f} |",
        f"| longest gap while a prompt joins, in passes of 64 rows | {joining['gap_in_passes']:.2f} | "
        f"{max(r['longest_gap_ms'] for r in joining['rounds']) / joining['pass_of_64_ms']:.2f} |",
        f"| first token of that prompt, to its time alone | {joining['first_to_alone']:.2f} | |",
    ])  # fmt: skip


def of_text(d: dict[str, Any]) -> str:
    rows = [f"| {k} | {v} |" for k, v in d.items() if k not in ("command", "questions", "tokens")]
    return "\n".join(["| what | figure |", "|---|---|", *rows])


def of_head(d: dict[str, Any]) -> str:
    shares = d["right_by_age"]
    return "\n".join([
        "| age | " + " | ".join(map(str, range(len(shares)))) + " |", "|---" * (len(shares) + 1) + "|",
        "| right | " + " | ".join(f"{x:.3f}" for x in shares) + " |", "",
        f"The demo draft: {d['right_draft']:.3f}. Tokens a pass with a chain of 5: {d['tokens_per_pass']:.2f} with the "
        f"head, {d['tokens_per_pass_draft']:.2f} with the draft.",
    ])  # fmt: skip


OWN = {
    "devices": of_devices,
    "texts": of_texts,
    "servers": of_servers,
    "company": of_company,
    "text": of_text,
    "head": of_head,
}


def printed(out: str) -> str:
    """The Markdown tables that a script printed, with the lines between them."""
    lines = out.strip().splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("|")), len(lines))
    kept: list[str] = []
    for i, line in enumerate(lines[max(0, first - 1) :]):
        table, before = line.startswith("|"), bool(kept) and kept[-1].startswith("|")
        if i and table != before and line and kept and kept[-1]:
            kept.append("")
        kept.append(line)
    return "\n".join(kept).strip()


def of_step(step: Step, found: dict[str, Any]) -> str:
    if found["state"] != "done":
        return f"Not measured: {found['state']}."
    text = OWN[step.name](found["data"]) if step.name in OWN else printed(found["printed"])
    others = found["other_cores"]
    noise = f" Other programs used {others:.1f} cores meanwhile." if step.timed and (others or 0) > QUIET_CORES else ""
    return f"{step.about}{noise} (`{found['command']}`, {found['seconds']:.0f} s)\n\n{text}"


def page(report: dict[str, Any]) -> str:
    steps = report["steps"]
    done = {name: s["data"] for name, s in steps.items() if s["state"] == "done"}
    minutes = sum(s["seconds"] for s in steps.values()) / 60
    out = [
        "# All tables, measured at once",
        f"`make bench` wrote this page: commit {report['commit']}, {report['date']}, {minutes:.0f} minutes of "
        "measuring. [README.md](README.md) says what each script measures, and [history/](history) has the results of "
        "other machines and of longer runs.",
        "\n".join(f"* {line}" for line in in_words(report["machine"])),
        "## The worst beside the best",
        "Ratios of tokens per second (kernels: of times). Each is taken within one run, of arms in turn. Below 1.00 "
        "the first one is slower.",
        extremes.table(done),
    ]
    part = ""
    for step in (s for s in STEPS if s.name in steps):
        if step.part != part:
            part = step.part
            out.append(f"## {part}")
        out += [f"### {step.title}", of_step(step, steps[step.name])]
    return "\n\n".join([*out, "## Not measured here", LEFT_OUT]) + "\n"


def main() -> None:
    folder = Path(__file__).parent
    for file in (folder / "results").glob("report*.json"):
        (folder / f"{file.stem}.md").write_text(page(json.loads(file.read_text("utf-8"))), "utf-8")


if __name__ == "__main__":
    main()
