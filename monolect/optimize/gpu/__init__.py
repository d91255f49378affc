"""Choose and check the actions of kernels for targets with workgroups."""
