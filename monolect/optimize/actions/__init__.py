"""Define the legal actions on the loops of a kernel, one module per kind, and the plan that performs them."""
