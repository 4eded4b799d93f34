"""Held-out openings in the demo pair's domain."""

import json
from pathlib import Path

PROMPTS = [
    json.loads(line)["turns"][0]
    for line in (Path(__file__).parents[1] / "benchmarks/prompts/completion_dev.jsonl").read_text("utf-8").splitlines()
]
