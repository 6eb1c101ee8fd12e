"""Which part of a node's storage is damaged: a damaged table can be had from another member, a log cannot."""

from __future__ import annotations

from fastlock.storage import StorageDamaged


class RowsDamaged(StorageDamaged):
    """Checkpoint rows cannot be read back, but the log, term and vote can."""
