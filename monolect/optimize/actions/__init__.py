"""Define the legal actions on the loops of a kernel: the plan, and one module per action."""
