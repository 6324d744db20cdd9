"""Fixtures for all tests: the real servers."""

from tests.servers.postgres import postgres
from tests.servers.s3 import s3

__all__ = ["postgres", "s3"]
