"""Mutated headers of GGUF files."""
