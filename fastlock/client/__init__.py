"""Talking to a cluster: a protocol core that does no I/O, and thin drivers around it."""
