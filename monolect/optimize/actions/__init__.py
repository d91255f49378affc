"""Legal moves on the loops of a kernel: the plan, and a module an action."""
