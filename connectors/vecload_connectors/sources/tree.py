"""What a tree of files is to a source, wherever it lies, and how reading one of its files ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from vecload.documents import Container, Key, Problem, Skipped, key_text
from vecload_connectors.sources.patterns import Patterns

DEFAULT_MAX_DOCUMENT_BYTES = 64 << 20


class Tree(Protocol):
    """Files below a root, named by their path relative to it, with `/` between folders."""

    id: str
    weak_tags: bool

    @property
    def root(self) -> Path | None:
        """The folder, where it lies on this machine."""

    def list(self, patterns: Patterns) -> Iterator[Container | Skipped | Problem]:
        """The files that match, as a stream, each a container whose key is `key_text(path)`. Raises SourceError."""

    def open(self, path: str, tag: str | None) -> BinaryIO:
        """The content as a stream that can seek, of the very file that was listed with this tag.

        Raises NotReadError, also from reads of the stream, and SourceError when the tree is out of reach.
        """

    def read(self, path: str, size: int | None, limit: int) -> bytes:
        """The whole content; `size` is what the listing said. Raises as `open`; NotReadError above `limit` bytes."""

    def close(self) -> None: ...


class NotReadError(Exception):
    """A file that was not read, and why; `skipped`: it is nothing that could be read, and no fault."""

    def __init__(self, reason: str, message: str = "", *, transient: bool = False, skipped: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.transient = transient
        self.skipped = skipped

    def outcome(self, key: Key) -> Problem | Skipped:
        if self.skipped:
            return Skipped(key, self.reason)
        return Problem(key, self.reason, self.message, self.transient)


def too_large(path: str, limit: int) -> NotReadError:
    return NotReadError(
        "too_large", f"'{key_text(path)}' is larger than max_document_bytes ({limit:,} bytes); it was not read."
    )


def vanished(path: str) -> NotReadError:
    return NotReadError("vanished", f"'{key_text(path)}' was listed and then was gone.", transient=True)


def changed(path: str) -> NotReadError:
    return NotReadError("changed", f"'{key_text(path)}' changed while it was being read; run again.", transient=True)
