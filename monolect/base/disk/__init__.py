"""Store data on disk: caches between processes, atomically written files, and the hash of the compiler's source."""
