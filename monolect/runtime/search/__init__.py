"""Search for actions by timing candidates: the cache of results, worker processes, buffers to time on."""
