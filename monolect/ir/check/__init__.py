"""Check graphs: verify the rules of a stage, prove bounds of indices, and interpret graphs on NumPy arrays."""
