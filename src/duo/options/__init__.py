"""Every keyword in one place: its type and bounds, its spellings on the command line, its help."""
