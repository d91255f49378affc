"""Define the passes over command buffers, one in each module."""
