"""BLAKE2b, which names what caches keep.

From the module that has nothing else: `hashlib` loads OpenSSL, 4 of the 300 ms that a second process may take.
"""

try:
    from _blake2 import blake2b
except ImportError:  # no CPython
    from hashlib import blake2b

__all__ = ["blake2b"]
