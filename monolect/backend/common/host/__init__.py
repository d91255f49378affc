"""The processor as a device: memory, code in it, threads, command tables."""
