"""The messages between two machines."""
