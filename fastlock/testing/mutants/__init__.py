"""Planted bugs: each breaks one promise, and the simulator must notice (`make mutants`)."""
