"""A folder of this machine, read with plain system calls.

Not through obstore: its local store ends the whole listing at a symlink loop or an unreadable folder, follows links out
of the root, and leaves out names that are not UTF-8.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from vecload.documents import Container, Problem, Skipped, key_text
from vecload.errors import SourceError
from vecload_connectors.sources.patterns import Patterns
from vecload_connectors.sources.tree import NotReadError, changed, too_large, vanished


class LocalTree:
    weak_tags = True

    def __init__(self, root: str | Path, *, links_may_leave: bool = False) -> None:
        self._root = os.path.realpath(os.path.expanduser(root))
        self.root = Path(self._root)
        self._links_may_leave = links_may_leave
        # A name that is not UTF-8 must not reach a ledger or a store.
        self.id = os.fsencode(self._root).decode("utf-8", "backslashreplace")

    def list(self, patterns: Patterns) -> Iterator[Container | Skipped | Problem]:
        if not os.path.lexists(self._root):
            raise SourceError(f"The folder {self.id} does not exist.")
        if not os.path.isdir(self._root):
            raise SourceError(f"{self.id} is no folder; give its folder as url, and its name as include.")
        # A stack of folders rather than recursion: a tree may be deeper than Python's.
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(os.path.join(self._root, folder)) as entries:
                    for entry in entries:
                        path = f"{folder}{entry.name}"
                        if entry.is_dir(follow_symlinks=False):
                            if patterns.may_hold(path):
                                folders.append(f"{path}/")
                        else:
                            yield from self._listed(entry, path, patterns)
            except OSError as error:
                if not folder:
                    raise SourceError(f"The folder {self.id} cannot be listed ({error.strerror}).") from error
                yield _failure(folder, error).outcome(folder)

    def _listed(
        self, entry: os.DirEntry[str], path: str, patterns: Patterns
    ) -> Iterator[Container | Skipped | Problem]:
        try:
            if entry.is_symlink():
                reason = self._why_not_followed(entry.path)
                wanted = patterns.may_hold(path) if reason == "symlink_directory" else patterns.match(path)
                if reason is not None:
                    if wanted:
                        yield Skipped(path, reason)
                    return
            if not patterns.match(path):
                return
            status = entry.stat()
        except FileNotFoundError:
            return  # deleted a moment ago
        except OSError as error:
            yield _failure(path, error).outcome(path)
            return
        if not stat.S_ISREG(status.st_mode):
            yield Skipped(path, "not_a_regular_file")
        else:
            yield Container(key_text(path), _tag(status), status.st_size)

    def _why_not_followed(self, path: str) -> str | None:
        try:
            target = os.path.realpath(path, strict=True)
        except FileNotFoundError:
            return "broken_link"
        except OSError as error:
            if error.errno == errno.ELOOP:
                return "broken_link"
            raise
        if os.path.isdir(target):
            return "symlink_directory"  # never followed, so that no loop is possible
        return None if self._is_inside(target) else "symlink_outside"

    def _is_inside(self, target: str) -> bool:
        return self._links_may_leave or target.startswith(os.path.join(self._root, ""))

    def open(self, path: str, tag: str | None) -> BinaryIO:
        return self._open(path, tag)[0]

    def _open(self, path: str, tag: str | None) -> tuple[BinaryIO, os.stat_result]:
        try:
            # Again, since the listing may be long ago: a file may have become a link, or a pipe.
            target = os.path.realpath(os.path.join(self._root, path), strict=True)
            if not self._is_inside(target):
                raise NotReadError("symlink_outside", skipped=True)
            # O_NONBLOCK: opening a pipe that nobody writes to must not wait.
            descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a socket, or a device that is not there
                raise NotReadError("not_a_regular_file", skipped=True) from None
            raise _failure(path, error) from error
        status = os.fstat(descriptor)
        try:
            if not stat.S_ISREG(status.st_mode):
                raise NotReadError("not_a_regular_file", skipped=True)
            if tag is not None and tag != _tag(status):
                raise changed(path)
        except NotReadError:
            os.close(descriptor)
            raise
        return os.fdopen(descriptor, "rb"), status

    def read(self, path: str, size: int | None, limit: int) -> bytes:
        file, status = self._open(path, None)
        with file:
            if status.st_size > limit:
                raise too_large(path, limit)
            try:
                content = file.read(status.st_size + 1)
                if len(content) > status.st_size:  # it grows
                    content += file.read(limit)
            except OSError as error:
                raise _failure(path, error) from error
        if len(content) > limit:
            raise too_large(path, limit)
        return content

    def close(self) -> None:
        pass


def _tag(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"


def _failure(path: str, error: OSError) -> NotReadError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return vanished(path)
    message = f"'{key_text(path)}' cannot be read ({error.strerror}); check its permissions."
    # Transient: permissions that are set right change neither size nor modification time, so the tag would not tell.
    return NotReadError("unreadable", message, transient=True)
