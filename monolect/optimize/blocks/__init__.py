"""Lay out blocks of operands in local memory, and operands in the lanes of a warp."""
