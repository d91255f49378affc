"""Choose and apply loop transformations of one kernel: legal actions as data, and the heuristic that chooses them.

It changes no result beyond the order in which floats are added. It must not import `schedule`, `lower`, a backend or
anything above them: what a target can do reaches it as data.
"""
