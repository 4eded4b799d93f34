"""The arguments of scripts that count something in texts of one pair."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from duo.models.demo import demo_pair


def pair_args(doc: str | None) -> tuple[argparse.Namespace, list[str]]:
    """target, draft, questions, n and out; and the prompts. doc: of the script."""
    p = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    p.add_argument("--target", default=str(demo_pair()[0]))
    p.add_argument("--draft", default=str(demo_pair()[1]))
    p.add_argument("--questions", type=int, default=40)
    p.add_argument("-n", type=int, default=160)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    lines = (Path(__file__).parent / "prompts/completion_dev.jsonl").read_text("utf-8").splitlines()
    return args, [json.loads(x)["turns"][0] for x in lines][: args.questions]
