"""Apple GPUs by way of the Metal Shading Language: source text, compiled by the system it runs on, and the device.

It must not import another target or anything above the backends.
"""
