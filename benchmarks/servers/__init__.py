"""Servers as child processes, what they hold of the system, and a mixed load for them."""
