"""The messages between two machines, and their checks."""
