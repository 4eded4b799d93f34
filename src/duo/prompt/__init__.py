"""What a prompt is made of: chat templates, grammars, JSON schemas."""
