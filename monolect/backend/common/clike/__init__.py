"""Render programs as source text of C-like languages."""
