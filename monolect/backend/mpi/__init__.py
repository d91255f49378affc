"""The device `mpi`: processors of the processes of an MPI job, `mpi` of rank 0, `mpi:1` of rank 1, and so on."""
