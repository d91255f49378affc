"""GPUs behind a vendor's driver: calls, memory, command graphs."""
