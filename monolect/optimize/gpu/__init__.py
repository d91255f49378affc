"""Choose actions for devices with workgroups."""
