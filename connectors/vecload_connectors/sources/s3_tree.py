"""A bucket, or the part of one below a prefix, on Amazon S3 or a store that speaks its protocol."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, BinaryIO

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from vecload.documents import Container, Problem, Skipped, key_text
from vecload.errors import MissingDependencyError, SourceError
from vecload_connectors.sources.patterns import Patterns
from vecload_connectors.sources.tree import NotReadError, changed, too_large, vanished

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, S3Config, S3Credential, S3Store

RETRY_SECONDS = 30
"""For how long one request is tried again while the endpoint does not answer, or answers with an error of its own."""

LIST_PAGE = 1000
READ_BLOCK_BYTES = 1 << 20

BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")

# What S3 answers when it refuses the caller, whatever the object.
BAD_CREDENTIALS = {
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "InvalidToken",
    "ExpiredToken",
    "TokenRefreshRequired",
}
BAD_CREDENTIALS |= {"RequestTimeTooSkewed", "AuthorizationHeaderMalformed", "InvalidSecurity", "NotSignedUp"}
WRONG_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}


class S3Access(BaseModel):
    """How to reach S3. What is not set comes from the AWS_* environment, or from the machine's own role."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: str | None = Field(
        default=None, description="the server's URL, for a store that is not Amazon's; default: AWS_ENDPOINT_URL"
    )
    region: str | None = Field(default=None, description="the bucket's region; default: AWS_REGION, else us-east-1")
    access_key_id: str | None = Field(default=None, description="default: AWS_ACCESS_KEY_ID")
    secret_access_key: SecretStr | None = Field(default=None, description="default: AWS_SECRET_ACCESS_KEY")
    session_token: SecretStr | None = Field(default=None, description="for temporary keys; default: AWS_SESSION_TOKEN")
    anonymous: bool = Field(default=False, description="send no credentials, for public buckets")

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and not _is_endpoint(endpoint):
            raise ValueError("write a URL such as https://s3.example.org or http://localhost:9000")
        return endpoint

    @model_validator(mode="after")
    def _keys_come_together(self) -> S3Access:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key must be set together")
        return self


def split_s3_url(url: str) -> tuple[str, str]:
    """(bucket, key or prefix without slashes around it) of an `s3://` URL. Raises ValueError."""
    scheme, _, rest = url.partition("://")
    bucket, _, path = rest.partition("/")
    if scheme.lower() != "s3" or not BUCKET_NAME.fullmatch(bucket):
        raise ValueError(f"'{url}' names no bucket; write s3://bucket/prefix/")
    return bucket, path.strip("/")


class S3Tree:
    weak_tags = False
    root = None

    def __init__(self, bucket: str, prefix: str, access: S3Access) -> None:
        self.id = f"s3://{bucket}/{prefix}/" if prefix else f"s3://{bucket}/"
        self._bucket = bucket
        self._store = _store(bucket, prefix, access)

    def list(self, patterns: Patterns) -> Iterator[Container | Skipped | Problem]:
        try:
            for page in self._store.list(chunk_size=LIST_PAGE):
                for meta in page:
                    path, size = meta["path"], meta["size"]
                    if not patterns.match(path) or _is_folder_marker(path, size):
                        continue
                    tag = meta["e_tag"] and f"{meta['e_tag']}-{size}"
                    yield Container(key_text(path), tag, size)
        except Exception as error:
            raise self._source_error(error) from error

    def find(self, path: str) -> Container | None:
        """The one object of this name, None when there is none. Raises SourceError."""
        try:
            meta = self._store.head(path)
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._source_error(error) from error
        return Container(key_text(path), meta["e_tag"] and f"{meta['e_tag']}-{meta['size']}", meta["size"])

    def open(self, path: str, tag: str | None) -> BinaryIO:
        etag, _, size = (tag or "").rpartition("-")
        if not tag:
            found = self.find(path)
            if found is None:
                raise vanished(path)
            size = str(found.size)
        return io.BufferedReader(_Ranges(self, path, etag or None, int(size)), READ_BLOCK_BYTES)

    def range(self, path: str, etag: str | None, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end` of the object that has this etag. Raises as `open`."""
        options: GetOptions = {"range": (start, end), "if_match": etag}
        return self._get(path, lambda: bytes(self._store.get(path, options=options).bytes()))

    def read(self, path: str, size: int | None, limit: int) -> bytes:
        if size == 0:
            return b""
        if size is not None and size > limit:
            raise too_large(path, limit)

        def whole() -> bytes:
            answer = self._store.get(path)
            if answer.meta["size"] > limit:  # it has grown since it was listed
                raise too_large(path, limit)
            return bytes(answer.bytes())

        return self._get(path, whole)

    def _get(self, path: str, get: Callable[[], bytes]) -> bytes:
        from obstore.exceptions import PreconditionError

        try:
            return get()
        except NotReadError:
            raise
        except FileNotFoundError as error:
            raise vanished(path) from error
        except PreconditionError as error:
            raise changed(path) from error
        except Exception as error:
            status, code = _answer(error)
            if status is None or code in BAD_CREDENTIALS or code == "NoSuchBucket":
                raise self._source_error(error) from error
            what = f"'{key_text(path)}' cannot be read (S3 answered {status} {code})"
            if status == 403:
                raise NotReadError("unreadable", f"{what}; check that the keys may read it.") from error
            raise NotReadError("unreadable", f"{what}.", transient=True) from error

    def _source_error(self, error: Exception) -> SourceError:
        """One sentence about the bucket as a whole; the client's own text holds URLs and dumps of its settings."""
        where = f"s3://{self._bucket}/"
        text = str(error)
        status, code = _answer(error)
        if "/latest/api/token" in text or "/latest/meta-data" in text:  # it asked the machine for a role
            return SourceError(
                f"{where}: there are no credentials; set access_key_id and secret_access_key "
                "(or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or anonymous for a public bucket."
            )
        if code in WRONG_REGION or status == 301:
            return SourceError(
                f"{where} is in another region; set region (or AWS_REGION) to the bucket's own ({code})."
            )
        if code == "NoSuchBucket":
            return SourceError(f"The bucket {where} does not exist; check url and endpoint.")
        if status in (401, 403):
            return SourceError(
                f"{where} refused the credentials ({code}); check access_key_id and secret_access_key "
                "(or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), session_token, and what they may do."
            )
        if status is not None:
            return SourceError(
                f"{where}: the S3 server answered {status} {code}; check endpoint and url, or run again."
            )
        if "invalid path" in text:
            return SourceError(
                f"{self.id} holds a key with an empty or dotted folder name (such as a//b), which cannot be listed; "
                "rename that object, or choose a narrower prefix."
            )
        return SourceError(
            f"{where}: the S3 endpoint did not answer for {RETRY_SECONDS} s; check endpoint (or AWS_ENDPOINT_URL) "
            "and the network."
        )

    def close(self) -> None:
        pass


class _Ranges(io.RawIOBase):
    """An object as a file: each read is one ranged request for the same version of it."""

    def __init__(self, tree: S3Tree, path: str, etag: str | None, size: int) -> None:
        self._tree, self._path, self._etag, self._size = tree, path, etag, size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # RawIOBase names the type WriteableBuffer
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        block = self._tree.range(self._path, self._etag, self._position, end)
        buffer[: len(block)] = block
        self._position += len(block)
        return len(block)


def _store(bucket: str, prefix: str, access: S3Access) -> S3Store:
    try:
        from obstore.store import S3Store
    except ImportError:
        raise MissingDependencyError("Reading from S3", "s3") from None

    endpoint = access.endpoint or next(filter(None, map(os.environ.get, ENDPOINT_VARIABLES)), None)
    if endpoint is not None and not _is_endpoint(endpoint):
        raise SourceError(
            f"s3://{bucket}/: the endpoint in the environment ({' or '.join(ENDPOINT_VARIABLES)}) is no URL."
        )
    config: S3Config = {}
    if endpoint is not None:
        config["endpoint"] = endpoint
        # The variable for one service would overrule the setting.
        config["aws_endpoint_url_s3"] = endpoint
    if access.region is not None:
        config["region"] = access.region
    if access.anonymous:
        config["skip_signature"] = True
    client: ClientConfig = {
        "allow_http": endpoint is not None and endpoint.lower().startswith("http://"),
        "connect_timeout": "5s",
        "read_timeout": "20s",
        "timeout": timedelta(seconds=300),
    }
    keys = _keys(access)
    return S3Store(
        bucket,
        prefix=prefix or None,
        config=config,
        client_options=client,
        # The time is the limit; the number of tries only has to be out of its way.
        retry_config={
            "max_retries": 100,
            "retry_timeout": timedelta(seconds=RETRY_SECONDS),
            "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 2},
        },
        credential_provider=(lambda: keys) if keys else None,
    )


def _keys(access: S3Access) -> S3Credential | None:
    """The keys of the settings. A provider rather than settings of the client: those would be mixed with the
    environment's session token, which belongs to other keys."""
    if access.access_key_id is None or access.secret_access_key is None or access.anonymous:
        return None
    return {
        "access_key_id": access.access_key_id,
        "secret_access_key": access.secret_access_key.get_secret_value(),
        "token": access.session_token.get_secret_value() if access.session_token else None,
        "expires_at": None,
    }


def _is_endpoint(url: str) -> bool:
    return re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", url, re.IGNORECASE) is not None


def _is_folder_marker(path: str, size: int) -> bool:
    """An empty object `folder/`, which consoles make. The client lists it without its slash; since an empty object
    holds nothing to embed, one without a suffix is taken for a marker."""
    return size == 0 and "." not in path.rpartition("/")[2]


def _answer(error: Exception) -> tuple[int | None, str]:
    """(HTTP status, S3 error code) of the server's answer; (None, "") where there was none."""
    text = str(error)
    status = re.search(r"status code: (\d{3})", text)
    code = re.search(r"<Code>(\w+)</Code>", text)
    return (int(status[1]) if status else None), (code[1] if code else "")
