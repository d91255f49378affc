"""Find the values that the code of a step reads besides its arguments, and guard them against changes."""
