"""Training of draft heads and draft models, with the target itself as the teacher. Needs PyTorch (extra `train`)."""
