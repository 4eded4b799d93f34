"""Files of tests/data that were trained (its README says how)."""

from pathlib import Path

# A target with experts and an MTP layer, with the demo pair's vocabulary.
MIXTURE = Path(__file__).parent / "data" / "mixture-target.gguf"
