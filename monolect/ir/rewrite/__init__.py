"""Rewrite graphs: identities applied during construction, index arithmetic, named rules, patterns, driver, calls."""
