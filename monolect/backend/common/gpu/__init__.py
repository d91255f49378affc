"""Supply what devices of CUDA and HIP share: driver calls, memory, command graphs."""
