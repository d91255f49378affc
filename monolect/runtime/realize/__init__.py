"""Compute requested values into memory: schedules, programs, command buffers, launches."""
