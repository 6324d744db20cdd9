from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    """The command line sets up logging for its whole process, which here is also that of other tests."""
    loggers = [logging.getLogger(name) for name in (None, "vecload", "vecload.engine")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers
