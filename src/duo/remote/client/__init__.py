"""The side that writes the text: it keeps in touch with a host."""
