"""Thousands of random faults, and whether a text changes, a token is lost, or a process ends as it must not."""
