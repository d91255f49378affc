"""Write captured steps to files and load them. A file is read as if an attacker had written it."""
