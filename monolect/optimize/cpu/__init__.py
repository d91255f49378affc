"""The choice of actions for processors."""
