"""Rewriting: identities of construction, index arithmetic, rules by name, patterns, the driver, bodies of calls."""
