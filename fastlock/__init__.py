"""fastlock: a distributed lock service with leases, fencing tokens and fair queues."""

__all__ = ["__version__"]

__version__ = "0.1.0"
