"""Derivatives of graphs, as graphs: one row for each op that has one.

It works on nodes alone. It must not import tensors, passes, backends or the rewrite rules beside it; what a derivative
needs done to a graph is left to the passes, which treat it like any other graph.
"""
