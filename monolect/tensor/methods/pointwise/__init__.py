"""Methods of each element beyond arithmetic: special functions, parts of numbers, statistics along axes."""
