"""What `duo bench` measures: plain, sync and async decoding of the same questions, interleaved in one run."""
