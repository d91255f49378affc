"""The passes over command buffers."""
