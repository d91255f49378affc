"""The Python target: programs are interpreted with NumPy, every index checked; the oracle without hardware."""
