"""A native thread that works through a bounded ring of jobs and never takes the GIL. Only for cimport."""
