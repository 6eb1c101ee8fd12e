"""`pytest tests/raft --rewrite` writes what the transcripts print now into their files."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite the expected output of Raft transcripts")
