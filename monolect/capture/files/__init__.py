"""Define the file of a captured step: what is written, and how it is read as if an attacker had written it."""
