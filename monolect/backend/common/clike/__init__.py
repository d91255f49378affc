"""Programs as text of C-like languages."""
