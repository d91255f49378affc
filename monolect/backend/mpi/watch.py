"""Name the process of a job that dies: a program of its own, one on each host, that outlives the processes it watches.

`mpiexec` kills all processes of a job when one dies, and does not say which rank that was. The watcher is not among
them. It sleeps until a process ends, then reads whether that process had noted its end.

    python watch.py FILE RANK:PID...      FILE has a byte for each process, which it sets before it ends as it should

It uses the standard library only, so that it starts in milliseconds. Systems without pidfds have no watcher.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from pathlib import Path

ENDED = b"1"  # the byte of a process that ended as it should, or said why it did not


def watch(path: str, ranks: dict[int, int]) -> None:
    """Wait until all processes ended; print the first that did not note its end. `ranks`: the rank of each PID."""
    poll, pids = select.poll(), {}
    for k, pid in enumerate(ranks):
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        pids[descriptor] = k, pid
        poll.register(descriptor, select.POLLIN)
    is_named = False
    while pids:
        for descriptor, _ in poll.poll():
            k, pid = pids.pop(descriptor)
            poll.unregister(descriptor)
            if not is_named and Path(path).read_bytes()[k : k + 1] != ENDED:
                is_named = True
                text = f"monolect: rank {ranks[pid]} of {socket.gethostname()} (process {pid}) died; the job ends\n"
                os.write(2, text.encode())
    Path(path).unlink(missing_ok=True)


if __name__ == "__main__":
    pairs = [word.split(":") for word in sys.argv[2:]]
    watch(sys.argv[1], {int(pid): int(rank) for rank, pid in pairs})
