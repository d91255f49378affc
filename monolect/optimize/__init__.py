"""How the loops of one kernel are arranged: legal moves as data, and the heuristic that chooses among them.

It changes no result beyond the order in which floats are added. It must not import `schedule`, `lower`, a backend or
anything above them: what a target can do reaches it as data.
"""
