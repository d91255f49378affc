"""From requested values to memory: schedules, programs, command buffers, launches."""
