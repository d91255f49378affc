"""Methods that select elements by values: masks, unique elements, counts, and writes at computed positions."""
