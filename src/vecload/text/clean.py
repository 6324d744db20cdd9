"""Text and metadata as every tokenizer and every store takes them."""

from __future__ import annotations

import base64
import datetime
import math
import re
import uuid
from collections.abc import Mapping, Set
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecload.documents import Json

CLEANER_VERSION = 1
"""Raised whenever `clean` gives another text for some input."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_MAX_DEPTH = 32
_INT64 = range(-(2**63), 2**63)


def clean(text: str) -> str:
    r"""The text without what no store takes; everything else stays to the character.

    NUL is removed (PostgreSQL refuses it), lone surrogates become U+FFFD (they have no UTF-8 form), `\r\n` and `\r`
    become `\n`, and leading byte order marks are dropped. Offsets of chunks count the characters of this text.
    """
    text = text.replace("\x00", "")
    if text.startswith("\ufeff"):
        # All of them: after one was removed, a second would be the leading one, and clean() not idempotent.
        text = text.lstrip("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = _SURROGATES.sub("\ufffd", text)
    return text


def json_value(value: object) -> Json:
    """A metadata value as JSON that every store takes. Nothing is dropped.

    | Python                        | JSON                                                        |
    | ----------------------------- | ----------------------------------------------------------- |
    | None, bool                    | the same                                                    |
    | str                           | cleaned (see `clean`)                                       |
    | int                           | the same within 64 bits, else its decimal string            |
    | float                         | the same; "NaN", "Infinity", "-Infinity" where not finite   |
    | datetime, date, time          | ISO 8601                                                    |
    | Decimal, UUID                 | its string                                                  |
    | bytes, bytearray, memoryview  | base64                                                      |
    | numpy scalar, array           | as the Python value, as a list; datetime64 as ISO 8601      |
    | list, tuple                   | a list                                                      |
    | set, frozenset                | a list, sorted by the text of its items                     |
    | mapping                       | a dict; keys are cleaned strings, a second "1" is "1_"      |
    | anything else                 | cleaned `str(value)`, as for containers deeper than 32      |
    """
    return _json_value(value, 0)


def _json_value(value: object, depth: int) -> Json:
    # numpy's float64 is a float and its str_ a str, so they are converted before those types are looked at.
    if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
        value = _from_numpy(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean(str.__str__(value))  # the text also where a str-Enum has a __str__ of its own
    if isinstance(value, int):
        return int(value) if value in _INT64 else _decimal(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode("ascii")
    if depth < _MAX_DEPTH:
        if isinstance(value, Mapping):
            return _json_object(value, depth)
        if isinstance(value, list | tuple):
            return [_json_value(item, depth + 1) for item in value]
        if isinstance(value, Set):
            return [_json_value(item, depth + 1) for item in sorted(value, key=lambda item: (str(item), repr(item)))]
    return clean(str(value))


def _from_numpy(value: Any) -> object:
    """By what it can do: this module also runs in the parser process, which loads no numpy for its memory's sake."""
    return value.astype(str).tolist() if value.dtype.kind in "mM" else value.tolist()


def _json_object(value: Mapping[object, object], depth: int) -> dict[str, Json]:
    result: dict[str, Json] = {}
    for key, item in value.items():
        name = clean(key if isinstance(key, str) else str(key))
        while name in result:
            name += "_"
        result[name] = _json_value(item, depth + 1)
    return result


def _decimal(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # over Python's limit on the digits of an int; hexadecimal has none
        return hex(value)
