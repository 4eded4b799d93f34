"""What a trained mixture can do: python tools/mixture_figures.py docs.json.xz tests/data/mixture-target.gguf.

On the documents that were held out of its training: the loss, beside that of the demo target; and how many guesses of
the demo draft and of its own MTP layer are right (greedy, in turns, chains of 4, prompts of benchmarks/prompts).
Counts, not times.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from demo_head import divided

from duo import Duo, _core
from duo.benchmark import doctor
from duo.benchmark.bench.questions import read
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

N_WINDOW = 256
N_CHAIN, N_WRITTEN = 4, 64
PROMPTS = Path(__file__).parent.parent / "benchmarks" / "prompts" / "completion_dev.jsonl"


def held_out(docs: Path) -> list[list[int]]:
    """Windows of the documents, each with the token that begins a text."""
    with Duo(demo_pair()[0], n_ctx=N_WINDOW) as d:
        begin = d.tokenize("")
        n = N_WINDOW - len(begin)
        ids = [d.tokenize(text, add_bos=False) for text in divided(docs)[1]]
    return [begin + list(x[i : i + n]) for x in ids for i in range(0, len(x) - n, 4 * n)]


def loss(model: Path, windows: list[list[int]]) -> float:
    """Mean over all tokens but the first ones, nats."""
    probe = _core.Probe(doctor.options(str(model), 1, _core.kernel_types(), N_WINDOW))
    total = 0.0
    for ids in windows:
        probe.decode(ids, 0)
        log_p = doctor.log_softmax(probe.logits()[:-1])
        total -= float(log_p[np.arange(len(ids) - 1), ids[1:]].mean())
    return total / len(windows)


def accepted(model: Path, draft: Path | None, prompts: list[str], **more: Any) -> str:
    guesses, right, rounds, first = 0, 0, 0, [0, 0]
    with SwitchedDuo(model, draft, n_ctx=512, n_threads=1, always=True, **more) as d:
        for prompt in prompts:
            t = d.generate(
                prompt, mode="sync", n_draft=N_CHAIN, draft_tree="chain", temperature=0, max_tokens=N_WRITTEN,
                ignore_eos=True,
            ).timings  # fmt: skip
            guesses += t["draft_n"]
            right += t["draft_n_accepted"]
            rounds += t["draft_rounds"]
            first[0] += t["draft_n_accepted_by_position"][0]
            first[1] += t["draft_n_by_position"][0]
    return (
        f"{right} of {guesses} guesses, {first[0]} of {first[1]} first ones, "
        f"{1 + right / rounds:.2f} tokens a pass ({rounds} passes)"
    )


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("docs", type=Path)
    p.add_argument("model", type=Path)
    p.add_argument("--prompts", type=int, default=40)
    args = p.parse_args()
    windows = held_out(args.docs)
    for model in (demo_pair()[0], args.model):
        nats = loss(model, windows)
        print(f"{model.name}: {nats:.3f} nats, perplexity {np.exp(nats):.1f} ({len(windows)} windows)", flush=True)
    prompts = [q.turns[0] for q in read(PROMPTS)[: args.prompts]]
    print(f"the demo draft: {accepted(args.model, demo_pair()[1], prompts)}", flush=True)
    print(f"its MTP layer: {accepted(args.model, None, prompts, spec_type='draft-mtp')}")


if __name__ == "__main__":
    main()
