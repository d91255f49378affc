"""Captured steps: recorded as IR, kept in files, bound and replayed."""
