"""Drafts from the target's own file: with fewer bits, layers or experts; and what each brings."""
