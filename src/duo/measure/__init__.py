"""How fast, and why: bench, tune, doctor, the trace read back."""
