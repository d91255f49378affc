"""Provide BLAKE2b, the hash of cache keys and digests.

It is imported from `_blake2`, because `hashlib` loads OpenSSL, which takes 4 ms of the 300 ms that a second process may
take.
"""

try:
    from _blake2 import blake2b
except ImportError:  # not CPython
    from hashlib import blake2b

__all__ = ["blake2b"]
