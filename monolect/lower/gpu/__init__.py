"""Lowering for devices with workgroups."""
