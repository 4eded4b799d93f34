"""What answers look like: one module for each dialect. They translate texts into dicts, and compute nothing."""
