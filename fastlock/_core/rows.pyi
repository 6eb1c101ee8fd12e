"""Checkpoint rows as plain C structs. Nothing of it is for Python: see codec."""
