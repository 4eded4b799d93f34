"""Grammars (GBNF) and JSON schemas that constrain a text."""
