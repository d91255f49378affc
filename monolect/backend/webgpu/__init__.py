"""WebGPU: kernels as WGSL, compiled by wgpu-native for Vulkan, Metal or Direct3D, in memory of its own.

It must not import another target or anything above the backends.
"""
