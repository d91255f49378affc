"""The passes over command buffers, one a module."""
