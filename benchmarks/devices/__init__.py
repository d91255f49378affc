"""Several devices of one process, and several processes: sums, training steps, host cost."""
