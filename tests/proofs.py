"""What the tests of `duo prove` share."""

from __future__ import annotations

from duo.benchmark.prove.plan import Item, ProofPlan

SMALL = ProofPlan(("Once upon a time", "The king said"), 6, 1, (1, 2))
ITEM = Item("greedy", 0)
