"""How fast texts are, and why: bench, tune, doctor, reading and drawing traces."""
