"""Describe the loops of one kernel: parts of axes, their order, and the facts that make an action legal or not."""
