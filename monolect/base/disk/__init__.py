"""What is kept on disk: caches, files written whole or not at all, the name of the compiler's source."""
