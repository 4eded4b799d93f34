"""Which file a model is in, and what its header says."""
