"""One file for each kind of fault."""
