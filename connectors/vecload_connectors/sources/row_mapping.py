"""From a table's row to a document: which columns are its text, its key and its metadata."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from string import Formatter
from uuid import UUID

from vecload.documents import Key, Scalar

ALL_COLUMNS = "*"


class RowError(Exception):
    """A row that gives no document; `skipped`: there is nothing in it, and that is no fault."""

    def __init__(self, reason: str, message: str = "", *, skipped: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.skipped = skipped


class RowMapping:
    """`text` is a column, or a template with columns in braces, in which `{{` is a brace and `\\n` a line break."""

    def __init__(self, text: str, key: Sequence[str], metadata: Sequence[str]) -> None:
        self._parts = parsed_template(text)
        self._text = [column for _, column in self._parts if column is not None]
        self.key = list(key)
        self._takes_all = ALL_COLUMNS in metadata
        self._metadata = [column for column in metadata if column != ALL_COLUMNS]
        # What is done with the rows of an unchanged file: other settings must read it again.
        self.fingerprint = json.dumps([text, self.key, list(metadata)])

    @property
    def columns(self) -> list[str] | None:
        """The columns that are needed, None for all."""
        return None if self._takes_all else list(dict.fromkeys([*self.key, *self._text, *self._metadata]))

    def missing(self, columns: Sequence[str], *, complete: bool) -> tuple[str, str] | None:
        """(the setting, its column) for the first that is not among `columns`.

        Where these are but a sample (not `complete`), a metadata column may be a rare one.
        """
        wanted = [("text", c) for c in self._text] + [("key", c) for c in self.key]
        wanted += [("metadata", c) for c in self._metadata] if complete else []
        return next((pair for pair in wanted if pair[1] not in columns), None)

    def key_of(self, values: Mapping[str, object]) -> Key:
        """The typed value of the key column, a tuple where there are several. Raises RowError."""
        parts = tuple(_key_part(column, values.get(column)) for column in self.key)
        if all(part == "" for part in parts):
            raise RowError("null_key", f"the key column '{self.key[0]}' is empty")
        return parts if len(parts) > 1 else parts[0]

    def hash_of(self, values: Mapping[str, object]) -> str:
        """128 bits in hex over the text and metadata columns: what names a row that has no key."""
        content = [{c: values.get(c) for c in self._text}, self.metadata_of(values)]
        canonical = json.dumps(content, sort_keys=True, default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()[:32]

    def text_of(self, values: Mapping[str, object]) -> str:
        """Raises RowError: skipped as `empty` when there is nothing to render, `not_text` for a list or the like."""
        texts = {column: _text(column, values.get(column)) for column in self._text}
        is_template = len(self._parts) > 1
        if all(text is None for text in texts.values()) or (is_template and not any(texts.values())):
            raise RowError("empty", skipped=True)
        return "".join(literal + ((texts[column] or "") if column else "") for literal, column in self._parts)

    def metadata_of(self, values: Mapping[str, object]) -> dict[str, object]:
        """The chosen columns that the row has, with Python's own types."""
        if self._takes_all:
            taken = {*self.key, *self._text}
            return {column: value for column, value in values.items() if column not in taken}
        return {column: values[column] for column in self._metadata if column in values}


def parsed_template(text: str) -> list[tuple[str, str | None]]:
    """(literal text, column or None) pairs; without braces the whole is a column. Raises ValueError.

    Columns only: no attributes, indexes or formats, so that a template can reach nothing but the row.
    """
    if "{" not in text and "}" not in text:
        return [("", text)]
    parts: list[tuple[str, str | None]] = []
    for literal, column, form, conversion in Formatter().parse(text):
        if column == "" or form or conversion:
            raise ValueError(f"'{text}' is no template; write columns in braces, such as {{title}}")
        # In a shell, or unquoted in YAML, a line break can only be written as a backslash and an n.
        parts.append((literal.replace("\\n", "\n").replace("\\t", "\t"), column))
    if all(column is None for _, column in parts):
        raise ValueError(f"'{text}' names no column; write columns in braces, such as {{title}}")
    return parts


def _is_null(value: object) -> bool:
    return value is None or (isinstance(value, float | Decimal) and math.isnan(value))


def _key_part(column: str, value: object) -> Scalar:
    if _is_null(value):
        raise RowError("null_key", f"the key column '{column}' is null")
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID | timedelta):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    raise RowError("bad_key", f"the key column '{column}' holds a {type(value).__name__}")


def _text(column: str, value: object) -> str | None:
    if _is_null(value):
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, int | float | datetime | date | time | Decimal | UUID):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise RowError("not_text", f"the text column '{column}' holds bytes that are not UTF-8") from None
    raise RowError("not_text", f"the text column '{column}' holds a {type(value).__name__}")
