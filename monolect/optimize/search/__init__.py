"""BEAM: neighbours of a plan, and the walk over them."""
