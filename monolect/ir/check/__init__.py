"""Checks of graphs: rules of a stage, bounds of indices, and the interpreter that says what a graph means."""
