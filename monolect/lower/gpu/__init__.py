"""Lower loops and matrix units for devices with workgroups."""
