"""Search of actions by timing: candidates, worker processes, buffers."""
