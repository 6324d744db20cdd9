"""One run at a time for a source's part of a collection, held through a lock file beside the ledger."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

from vecload.errors import LedgerError


class RunLock:
    """Held from construction to `close`; the kernel lets go of it when the process dies, however it dies."""

    def __init__(self, ledger: Path, sink: str, source: str) -> None:
        """Raises LedgerError when another run holds it."""
        digest = hashlib.sha256(f"{sink}\n{source}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
        path = ledger.with_name(f"{ledger.name}.{digest}.lock")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._file, 32).decode("ascii", "replace").strip()
            os.close(self._file)
            raise LedgerError(
                f"Another run is bringing {source} into {sink} just now (process {holder or 'unknown'}); "
                "wait for it to end, then run again."
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode("ascii"), 0)

    def close(self) -> None:
        os.close(self._file)
