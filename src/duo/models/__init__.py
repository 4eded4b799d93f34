"""Finds the file of a model, and reads its header."""
