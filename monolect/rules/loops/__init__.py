"""Rules that replace loops: reductions with a closed form, scans, concatenation."""
