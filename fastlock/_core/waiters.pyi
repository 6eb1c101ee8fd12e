"""Whose wait ends when a wake comes: origins by the slot and revision of the claim they wait with."""

from typing import final

@final
class Waiters:
    """One group's waits as this node has to answer them."""
