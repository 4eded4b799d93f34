"""Chooses devices, CPUs, kernels and memory for each model."""
