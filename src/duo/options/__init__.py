"""Every keyword, once: its type and bounds, its spellings on the command line, its help."""
