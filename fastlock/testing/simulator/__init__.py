"""A cluster in one thread under virtual time: every run is a function of its seed."""
