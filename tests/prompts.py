"""Held-out openings in the demo pair's domain."""

import json
from pathlib import Path

PROMPTS = [
    json.loads(line)["turns"][0]
    for line in (Path(__file__).parents[1] / "benchmarks/prompts/completion_dev.jsonl").read_text("utf-8").splitlines()
]

# Some hundred tokens each.
LONG = [
    "The rain fell on the town all night, and the old clock struck. " * 20,
    "My brother and I went to the river to see the boats go by. " * 22,
    "Once upon a time there was a little girl who had a cat. " * 20,
    "In the forest lived an old man who never spoke to anybody. " * 18,
    "The king said that he would give half of his land away. " * 24,
]
