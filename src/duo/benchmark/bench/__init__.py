"""The measurements of `duo bench`: plain, sync and async decoding of the same questions, interleaved in one run."""
