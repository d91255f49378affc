"""The benchmark table of the CPU: monolect beside its peers, one row a program. `python -m benchmarks.cpu --help`.

`case.py` says what a row is, `families/` holds the rows, `peers.py` speaks each library, `worker.py` is a library's
process, `measure.py` takes the rounds, `machine.py` measures what the machine can do, `table.py` prints.
"""
