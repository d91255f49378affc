"""Exported steps beside the devices: equal bits, speed."""
