"""Which device, which CPUs, which kernels, how much memory."""
