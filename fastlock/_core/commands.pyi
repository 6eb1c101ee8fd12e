"""Commands and the log entries they travel in. Nothing of it is for Python: see codec."""
