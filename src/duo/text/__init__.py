"""One text, from what is wanted to what came."""
