"""Find what the code of a step reads besides its arguments, and guard it against changes."""
