"""Choose the actions of kernels for CPUs."""
