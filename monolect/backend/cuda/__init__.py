"""NVIDIA GPUs by way of CUDA C++: source for NVRTC, machine code for one architecture, run by the driver.

It must not import another target or anything above the backends.
"""
