"""Documents as rows: JSON Lines, CSV and Parquet files of this machine or of S3."""

from __future__ import annotations

import hashlib
import json
import logging
from array import array
from collections.abc import Iterator

import numpy as np
from pydantic import Field, field_validator

from vecload.contracts import SourceCapabilities, SourceConnector
from vecload.documents import Container, Document, Key, Problem, Skipped, key_from_text, key_text
from vecload.errors import UsageError
from vecload_connectors.sources.row_mapping import RowError, RowMapping, parsed_template
from vecload_connectors.sources.s3_tree import S3Access, split_s3_url
from vecload_connectors.sources.table_files import SUFFIXES, Listing, TableFiles
from vecload_connectors.sources.table_rows import BadRow, Row, declared_columns, read_rows, sampled_columns
from vecload_connectors.sources.tree import DEFAULT_MAX_DOCUMENT_BYTES, NotReadError

CONCURRENT_READS = 4

log = logging.getLogger("vecload")


class TablesSettings(S3Access):
    url: str = Field(
        min_length=1,
        description=f"a file ({', '.join(SUFFIXES)}), a glob or a folder of such, here or as s3://bucket/…",
    )
    text: str = Field(
        min_length=1,
        description="the text's column, or a template such as '{title}\\n\\n{body}' (null renders as nothing)",
    )
    key: list[str] = Field(
        default=[],
        description="the column, or the list of columns, that names a row; default: the file, and a hash of the row",
    )
    metadata: list[str] = Field(default=[], description="columns for the payload's metadata; '*': all but text and key")
    max_document_bytes: int = Field(
        default=DEFAULT_MAX_DOCUMENT_BYTES, gt=0, description="a larger row is not read and becomes a dead letter"
    )

    @field_validator("key", "metadata", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("text")
    @classmethod
    def _is_template(cls, text: str) -> str:
        parsed_template(text)
        return text

    @field_validator("url")
    @classmethod
    def _is_here_or_on_s3(cls, url: str) -> str:
        if "://" in url and not url.startswith("file://"):
            split_s3_url(url)
        return url


class TablesSource:
    """With a key, all files are one container: the last of equal keys wins, in whichever files they are.

    Without, each file is one, and a row is named by its file, the hash of its content, and which occurrence it is.
    """

    def __init__(self, settings: TablesSettings) -> None:
        self._files = TableFiles(settings.url, settings)
        self._mapping = RowMapping(settings.text, settings.key, settings.metadata)
        self._limit = settings.max_document_bytes
        self._listing: Listing | None = None
        self._warned = False
        self.id = self._files.id
        self.capabilities = SourceCapabilities(
            weak_tags=self._files.tree.weak_tags,
            concurrent_reads=CONCURRENT_READS,
            max_document_bytes=settings.max_document_bytes,
        )

    # ------------------------------------------------------------ listing

    def check_columns(self) -> None:
        """Raises UsageError when the first file that has columns lacks one of those that are set, SourceError."""
        for name, tag in self._files.list().tags.items():
            try:
                with self._files.tree.open(name, tag) as file:
                    declared = declared_columns(file, name, self._limit)
                with self._files.tree.open(name, tag) as file:
                    columns = declared or sampled_columns(file, name, self._limit)
            except NotReadError:
                continue  # reading it will say so
            if columns:
                message = _missing_column(name, self._mapping, columns, complete=declared is not None)
                if message is not None:
                    raise UsageError(message)
                return

    def list(self) -> Iterator[Container | Skipped | Problem]:
        self._listing = listing = self._files.list()
        yield from listing.others
        if not self._mapping.key:
            if not self._warned:
                log.warning("%s: no key is set, so a row that changes counts as a new document; set key.", self.id)
                self._warned = True
            for name, tag in listing.tags.items():
                yield Container(key_text(name), self._tag(tag and {name: tag}), listing.sizes[name])
        elif listing.tags and not any(isinstance(item, Problem) for item in listing.others):
            # With files missing from the set, its rows would look deleted: then the container is left as it was.
            tags = None if None in listing.tags.values() else listing.tags
            yield Container(self._whole, self._tag(tags), sum(listing.sizes.values()))

    @property
    def _whole(self) -> str:
        """The key of the one container."""
        return key_text(self._files.pattern or ".")

    def _tag(self, tags: object) -> str | None:
        if not tags:
            return None
        content = json.dumps([self._mapping.fingerprint, self._limit, tags])
        return hashlib.sha256(content.encode()).hexdigest()[:32]

    # ------------------------------------------------------------ reading

    def read(self, container: Container) -> Iterator[Document | Skipped | Problem]:
        listing = self._listing or self._files.list()
        if not self._mapping.key:
            name = str(key_from_text(container.key))
            rows = _Rows(self._files, {name: listing.tags.get(name)}, self._mapping, self._limit)
            yield from self._unkeyed(rows, container.key)
        else:
            rows = _Rows(self._files, listing.tags, self._mapping, self._limit)
            yield from self._keyed(rows, container.key)

    def _keyed(self, rows: _Rows, container: str) -> Iterator[Document | Skipped | Problem]:
        last = rows.last_of_equal_keys()
        for name, row in rows.all(container):
            if isinstance(row, Problem):
                yield row
                continue
            try:
                key = self._mapping.key_of(row.values)
            except RowError as error:
                yield _problem(f"{name}:{row.number}", name, row, error)
                continue
            if last.get(key_text(key), (name, row.number)) != (name, row.number):
                yield Skipped(key, "duplicate_key")
            else:
                yield self._document(key, name, row)

    def _unkeyed(self, rows: _Rows, container: str) -> Iterator[Document | Skipped | Problem]:
        repeated = rows.repeated_hashes()
        occurrences: dict[str, int] = {}
        for name, row in rows.all(container):
            if isinstance(row, Problem):
                yield row
                continue
            content = self._mapping.hash_of(row.values)
            occurrence = 0
            if int(content[:16], 16) in repeated:
                occurrence = occurrences.get(content, 0)
                occurrences[content] = occurrence + 1
            yield self._document((name, content, occurrence), name, row)

    def _document(self, key: Key, name: str, row: Row) -> Document | Skipped | Problem:
        try:
            text = self._mapping.text_of(row.values)
            if len(text) > self._limit:
                raise RowError("too_large", f"is larger than max_document_bytes ({self._limit:,} bytes)")
        except RowError as error:
            return Skipped(key, error.reason) if error.skipped else _problem(key, name, row, error)
        return Document(key, text, metadata=self._mapping.metadata_of(row.values))

    def close(self) -> None:
        self._files.tree.close()


class _Rows:
    """The rows of some files, in the order of the files' names; read as often as asked, never held."""

    def __init__(self, files: TableFiles, tags: dict[str, str | None], mapping: RowMapping, limit: int) -> None:
        self._files, self._tags, self._mapping, self._limit = files, tags, mapping, limit

    def all(self, container: str) -> Iterator[tuple[str, Row | Problem]]:
        """(file, row). A file that cannot be read to its end gives a Problem of the container, and the next goes on."""
        for name in self._tags:
            try:
                for row in self._of_file(name, self._mapping.columns):
                    if isinstance(row, BadRow):
                        yield name, Problem(f"{name}:{row.number}", row.reason, row.message)
                    else:
                        yield name, row
            except NotReadError as error:
                yield name, Problem(container, error.reason, error.message, error.transient)

    def _of_file(self, name: str, columns: list[str] | None) -> Iterator[Row | BadRow]:
        tree, tag = self._files.tree, self._tags[name]
        with tree.open(name, tag) as file:
            declared = declared_columns(file, name, self._limit)
        message = _missing_column(name, self._mapping, declared, complete=True) if declared else None
        if message is not None:
            raise NotReadError("missing_column", message)
        with tree.open(name, tag) as file:
            yield from read_rows(file, name, columns, self._limit)

    def last_of_equal_keys(self) -> dict[str, tuple[str, int]]:
        """Where the last row of each key stands that stands more than once: key_text -> (file, row number).

        Two passes over the key columns alone: the first keeps 8 bytes a row, the second the repeated keys themselves,
        since two keys may share those 8 bytes. So memory hardly grows with the table.
        """
        repeated = _repeated(_short_hash(key) for _, _, key in self._keys())
        if not repeated:
            return {}
        return {key: (name, number) for name, number, key in self._keys() if _short_hash(key) in repeated}

    def _keys(self) -> Iterator[tuple[str, int, str]]:
        for name in self._tags:
            try:
                for row in self._of_file(name, self._mapping.key):
                    if isinstance(row, Row):
                        try:
                            yield name, row.number, key_text(self._mapping.key_of(row.values))
                        except RowError:
                            continue
            except NotReadError:
                continue  # the pass that yields the rows says so

    def repeated_hashes(self) -> set[int]:
        """The first 64 bits of the hash of each content that may stand more than once."""
        return _repeated(
            int(self._mapping.hash_of(row.values)[:16], 16) for _, row in self.all("") if isinstance(row, Row)
        )


def _missing_column(name: str, mapping: RowMapping, columns: list[str], *, complete: bool) -> str | None:
    missing = mapping.missing(columns, complete=complete)
    if missing is None:
        return None
    setting, column = missing
    return f"'{key_text(name)}' has no column '{column}' (set as {setting}); its columns are: {', '.join(columns)}."


def _short_hash(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")


def _repeated(hashes: Iterator[int]) -> set[int]:
    ordered = np.sort(np.frombuffer(array("Q", hashes), dtype=np.uint64))
    return set(np.unique(ordered[1:][ordered[1:] == ordered[:-1]]).tolist())


def _problem(key: Key, name: str, row: Row, error: RowError) -> Problem:
    return Problem(key, error.reason, f"Row {row.number} of '{key_text(name)}': {error.message}.")


def _open_tables(settings: TablesSettings) -> TablesSource:
    source = TablesSource(settings)
    source.check_columns()
    return source


TABLES = SourceConnector("tables", TablesSettings, _open_tables, suffixes=SUFFIXES, drivers=("pyarrow",))
