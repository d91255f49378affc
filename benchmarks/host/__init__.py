"""What monolect costs on the host, beside its peers."""
