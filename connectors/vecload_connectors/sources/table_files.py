"""Finds the files of a table: one file, a glob, or a folder of them, on this machine or on S3."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from vecload.documents import Container, Problem, Skipped, key_from_text
from vecload.errors import SourceError, UsageError
from vecload_connectors.sources.local_tree import LocalTree
from vecload_connectors.sources.patterns import WILDCARDS, Patterns, escaped
from vecload_connectors.sources.s3_tree import S3Access, S3Tree, split_s3_url
from vecload_connectors.sources.tree import Tree

SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv", ".jsonl.gz", ".ndjson.gz", ".csv.gz")


@dataclass
class Listing:
    """`tags` by file name, sorted by it; `others` are what was met besides."""

    tags: dict[str, str | None] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    others: list[Skipped | Problem] = field(default_factory=list)


class TableFiles:
    """`tree` holds the files, `pattern` names those that are the table; `id` is the canonical whole."""

    def __init__(self, url: str, access: S3Access) -> None:
        remote = "://" in url and not url.startswith("file://")
        root, self.pattern, self.is_single = _split_s3(url) if remote else _split_local(url.removeprefix("file://"))
        self.tree: Tree
        if remote:
            bucket, prefix = split_s3_url(root)
            self._s3: S3Tree | None = S3Tree(bucket, prefix, access)
            self.tree = self._s3
        else:
            self._s3 = None
            # A link that was given by name is meant, wherever it leads (a download cache is made of links).
            self.tree = LocalTree(root, links_may_leave=self.is_single)
        self._url = url
        if self.is_single and not self.pattern.lower().endswith(SUFFIXES):
            raise UsageError(f"{url} is no table that can be read; known endings are {', '.join(SUFFIXES)}.")
        self.id = f"{self.tree.id.rstrip('/')}/{self.pattern}" if self.pattern else self.tree.id

    def list(self) -> Listing:
        """Every file of the table. Raises SourceError, also when a single file is missing."""
        listing = Listing()
        for item in self._items():
            name = str(key_from_text(item.key) if isinstance(item, Container) else item.key)
            is_table = name.lower().endswith(SUFFIXES)
            if isinstance(item, Container):
                if is_table:
                    listing.tags[name] = item.tag
                    listing.sizes[name] = item.size or 0
            elif is_table or isinstance(item, Problem) or item.reason == "symlink_directory":
                listing.others.append(item)
        if self.is_single and not listing.tags and not listing.others:
            raise SourceError(f"The table {self._url} does not exist.")
        listing.tags = dict(sorted(listing.tags.items()))
        return listing

    def _items(self) -> Iterator[Container | Skipped | Problem]:
        if self.is_single and self._s3 is not None:
            found = self._s3.find(self.pattern)
            if found is not None:
                return iter([found])
            # A folder may be named like a file: `data.parquet/part-0.parquet`.
            return self._s3.list(Patterns([f"{self.pattern}/"]))
        if self.is_single:
            return self.tree.list(Patterns([escaped(self.pattern)]))
        return self.tree.list(Patterns([self.pattern] if self.pattern else []))


def _split_local(path: str) -> tuple[str, str, bool]:
    """(root, what is the table below it, whether that is one file's name); a folder's pattern is empty."""
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.isdir(path):
        return path, "", False
    if WILDCARDS.intersection(path) and not os.path.lexists(path):
        return *_split_glob(path), False
    return os.path.dirname(path), os.path.basename(path), True


def _split_s3(url: str) -> tuple[str, str, bool]:
    """As `_split_local`."""
    bucket, key = split_s3_url(url)
    is_single = False
    if WILDCARDS.intersection(key):
        root, pattern = _split_glob(key)
    elif url.endswith("/") or not key.lower().endswith(SUFFIXES):
        root, pattern = key, ""
    else:
        root, _, pattern = key.rpartition("/")
        is_single = True
    return f"s3://{bucket}/{root}", pattern, is_single


def _split_glob(path: str) -> tuple[str, str]:
    """(the folders before the first wildcard, the rest)."""
    segments = path.split("/")
    first = next(i for i, segment in enumerate(segments) if WILDCARDS.intersection(segment))
    return "/".join(segments[:first]) or ("/" if path.startswith("/") else ""), "/".join(segments[first:])
