"""Why one document could not be turned into text."""

from __future__ import annotations

from typing import Literal, get_args

Reason = Literal["broken", "timeout", "memory", "crashed", "too_large", "binary", "encrypted", "missing_parser"]
REASONS: frozenset[str] = frozenset(get_args(Reason))


class ParseFailure(ValueError):
    """One document is lost, the run is not. `message` is one sentence for a person, without the document's name.

    A ValueError, so that a parser raises it where the contract asks for one; any other ValueError counts as `broken`.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.message = message
