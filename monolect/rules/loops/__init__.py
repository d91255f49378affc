"""Replace loops by rules: reductions with a closed form, scans, concatenation."""
