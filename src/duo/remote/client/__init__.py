"""The side that generates the text and keeps the connection to a host."""
