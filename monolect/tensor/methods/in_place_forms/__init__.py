"""Forms of methods that write to self, such as `add_`; written by `make surface`."""
