"""Capture and replay steps: `@jit`, `@function`, the environment of a step, its fast path and its file."""
