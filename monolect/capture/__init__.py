"""`@jit` and `@function`: what a step depends on, its capture, its fast path, its file."""
