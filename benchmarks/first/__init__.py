"""How long the first result takes: compiling, beside JAX; the second process; growth with depth."""
