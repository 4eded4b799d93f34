"""Tools for developers of duo: models for tests and benchmarks, and a Duo with switches."""
