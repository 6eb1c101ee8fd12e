"""The simulator, its fault models and its checkers: the proof that the core keeps its promises."""
