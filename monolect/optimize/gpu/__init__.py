"""Actions and their choice for devices with workgroups."""
