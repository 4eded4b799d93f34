"""`duo serve` without a model: a process for each model that is asked for, and requests go to the one that they name.

From the outside in: `service` (what the server's other parts see), `routes` (requests), `fleet` (which models are
loaded), `child` (one process), `sources` (which models there are).
"""
