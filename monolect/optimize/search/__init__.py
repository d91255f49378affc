"""Search for the fastest actions of a kernel by timing (BEAM): moves, neighbours, and the walk over them."""
