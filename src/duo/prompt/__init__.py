"""Chat templates, grammars and JSON schemas."""
