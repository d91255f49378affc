"""Back end for WebGPU adapters: wgpu-native compiles WGSL for Vulkan, Metal or Direct3D 12 and owns the memory.

This package must not import another target or anything above the backends.
"""
