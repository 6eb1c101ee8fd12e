"""What a checker says when a promise was broken."""

from __future__ import annotations


class Violation(Exception):
    """A promise of the design did not hold; `checker` names the promise."""

    def __init__(self, checker: str, message: str) -> None:
        super().__init__(f"{checker}: {message}")
        self.checker = checker
        self.message = message
