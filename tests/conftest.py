"""Fixtures for all tests: the real servers."""

from tests.servers.milvus import milvus
from tests.servers.postgres import older_postgres, postgres, server_user
from tests.servers.s3 import s3

__all__ = ["milvus", "older_postgres", "postgres", "s3", "server_user"]
