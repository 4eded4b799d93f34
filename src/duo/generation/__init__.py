"""One text, from the request to the result."""
