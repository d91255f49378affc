"""Supply what devices on the host's processor share: memory, loading of code, threads, command tables."""
