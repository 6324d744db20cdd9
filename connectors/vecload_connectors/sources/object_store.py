"""Documents as files: the sources `files` (a folder of this machine) and `s3` (a bucket, or a prefix of one)."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from vecload.contracts import SourceCapabilities, SourceConnector
from vecload.documents import Container, Document, Problem, Skipped, key_from_text
from vecload_connectors.sources.local_tree import LocalTree
from vecload_connectors.sources.patterns import Patterns
from vecload_connectors.sources.s3_tree import S3Access, S3Tree, split_s3_url
from vecload_connectors.sources.tree import DEFAULT_MAX_DOCUMENT_BYTES, NotReadError, Tree

CONCURRENT_READS = 8


class Selection(BaseModel):
    """Which files of a tree are documents."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include: list[str] = Field(
        default=[],
        description="globs over the path below the root: * stays in a folder, ** spans folders (**/*.md); "
        "default: all; hidden files and folders only where a pattern names the dot (**/.env, .github/**)",
    )
    exclude: list[str] = Field(default=[], description="globs of what is left out, after include")
    max_document_bytes: int = Field(
        default=DEFAULT_MAX_DOCUMENT_BYTES, gt=0, description="a larger file is not read and becomes a dead letter"
    )

    @model_validator(mode="after")
    def _are_globs(self) -> Selection:
        Patterns(self.include, self.exclude)
        return self

    @property
    def patterns(self) -> Patterns:
        return Patterns(self.include, self.exclude)


class FilesSettings(Selection):
    url: str = Field(description="a folder")

    @field_validator("url")
    @classmethod
    def _is_path(cls, url: str) -> str:
        path = url.removeprefix("file://")
        if not path or "://" in path:
            raise ValueError(f"'{url}' is no path of this machine")
        return path


class S3Settings(Selection, S3Access):
    url: str = Field(description="s3://bucket/prefix/")

    @field_validator("url")
    @classmethod
    def _is_s3(cls, url: str) -> str:
        split_s3_url(url)
        return url


class ObjectStoreSource:
    """One file is one container and one document; its key is its path below the root."""

    def __init__(self, tree: Tree, selection: Selection) -> None:
        self.id = tree.id
        self.capabilities = SourceCapabilities(
            weak_tags=tree.weak_tags,
            concurrent_reads=CONCURRENT_READS,
            max_document_bytes=selection.max_document_bytes,
            root=tree.root,
        )
        self._tree = tree
        self._patterns = selection.patterns
        self._limit = selection.max_document_bytes

    def list(self) -> Iterator[Container | Skipped | Problem]:
        return self._tree.list(self._patterns)

    def read(self, container: Container) -> Iterator[Document | Skipped | Problem]:
        path = str(key_from_text(container.key))
        try:
            content = self._tree.read(path, container.size, self._limit)
        except NotReadError as error:
            yield error.outcome(path)
        else:
            # No modification time in the metadata: a touch must not change a payload.
            yield Document(path, content, name=path.rpartition("/")[2])

    def close(self) -> None:
        self._tree.close()


def _open_files(settings: FilesSettings) -> ObjectStoreSource:
    return ObjectStoreSource(LocalTree(settings.url), settings)


def _open_s3(settings: S3Settings) -> ObjectStoreSource:
    return ObjectStoreSource(S3Tree(*split_s3_url(settings.url), settings), settings)


FILES = SourceConnector("files", FilesSettings, _open_files, schemes=("file",))
S3 = SourceConnector("s3", S3Settings, _open_s3, schemes=("s3",), extra="s3", drivers=("obstore",))
