"""The rows of one table file, as a stream in flat memory: JSON Lines, CSV (both also gzipped), Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from vecload.documents import key_text
from vecload_connectors.sources.tree import NotReadError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

SAMPLE_ROWS = 100
PARQUET_BATCH_ROWS = 256
PARQUET_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    number: int
    """The line where it begins (JSON Lines, CSV), or its place (Parquet); from 1."""
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class BadRow:
    number: int
    reason: str
    message: str


def read_rows(file: BinaryIO, name: str, columns: Sequence[str] | None, limit: int) -> Iterator[Row | BadRow]:
    """Every row; `columns` are the only ones needed (None: all), which spares the rest where the format allows it.

    A row of over `limit` bytes is a BadRow. Raises NotReadError when the file is broken from some point on.
    """
    if _format(name) == "parquet":
        return _broken_as_not_read(name, _parquet_rows(file, name, columns))
    stream = _unpacked(file, name)
    rows = _csv_rows(stream, name, limit) if _format(name) == "csv" else _json_rows(stream, name, limit)
    return _broken_as_not_read(name, rows)


def declared_columns(file: BinaryIO, name: str, limit: int) -> list[str] | None:
    """The columns of every row; None where the format declares none, or the file is empty. Raises NotReadError."""
    match _format(name):
        case "parquet":
            columns = (_parquet(file).schema_arrow.names for _ in range(1))
        case "csv":
            columns = (row for row in _csv_reader(_unpacked(file, name), limit) if row)
        case _:
            return None
    return next(_broken_as_not_read(name, columns), None)


def sampled_columns(file: BinaryIO, name: str, limit: int) -> list[str]:
    """The columns that the first rows have. Raises NotReadError."""
    sample = islice(read_rows(file, name, None, limit), SAMPLE_ROWS)
    return list(dict.fromkeys(column for row in sample if isinstance(row, Row) for column in row.values))


def _format(name: str) -> str:
    return name.lower().removesuffix(".gz").rpartition(".")[2]


def _unpacked(file: BinaryIO, name: str) -> BinaryIO:
    return gzip.open(file) if name.lower().endswith(".gz") else file  # type: ignore[return-value]  # a GzipFile is binary


def _broken_as_not_read(name: str, items: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    try:
        yield from items
    except (pa.ArrowException, EOFError, zlib.error, OSError, csv.Error) as error:
        detail = " ".join(str(error).split())[:200]
        raise NotReadError("broken", f"'{key_text(name)}' is broken ({detail}); make the file again.") from error


# ---------------------------------------------------------------- JSON Lines


def _json_rows(stream: BinaryIO, name: str, limit: int) -> Iterator[Row | BadRow]:
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        if len(line) > limit:
            while line and not line.endswith(b"\n"):
                line = stream.readline(limit + 1)
            yield BadRow(number, "too_large", _at(name, number, f"is longer than max_document_bytes ({limit:,} bytes)"))
            continue
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            continue
        try:
            values = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            yield BadRow(number, "broken", _at(name, number, f"is not JSON ({error})"))
            continue
        if isinstance(values, dict):
            yield Row(number, values)
        else:
            yield BadRow(number, "broken", _at(name, number, "is not a JSON object"))


def _at(name: str, number: int, what: str) -> str:
    return f"Row {number} of '{key_text(name)}' {what}."


# ---------------------------------------------------------------- CSV


def _csv_reader(stream: BinaryIO, limit: int) -> Any:
    # The limit of 128 KiB a field belongs to the csv module, not to a reader; it is too small for documents, and
    # without any, a quote that is never closed would take the rest of the file into memory.
    csv.field_size_limit(max(limit, csv.field_size_limit()))
    # surrogateescape: a byte that is not UTF-8 costs its row, not the file.
    return csv.reader(io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline=""))


def _csv_rows(stream: BinaryIO, name: str, limit: int) -> Iterator[Row | BadRow]:
    reader = _csv_reader(stream, limit)
    header = next((row for row in reader if row), None)
    if header is None:
        return
    while True:
        number = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield BadRow(number, "broken", _at(name, number, f"cannot be read ({error})"))
            continue
        if fields is None:
            return
        if not fields:
            continue
        if len(fields) != len(header):
            what = f"has {len(fields)} fields, and the header {len(header)}"
            yield BadRow(number, "broken", _at(name, number, what))
        elif sum(map(len, fields)) > limit:
            yield BadRow(number, "too_large", _at(name, number, f"is larger than max_document_bytes ({limit:,} bytes)"))
        elif any(_has_stray_bytes(field) for field in fields):
            yield BadRow(number, "not_utf8", _at(name, number, "is not UTF-8; convert the file"))
        else:
            yield Row(number, dict(zip(header, fields, strict=True)))


def _has_stray_bytes(text: str) -> bool:
    return not text.isascii() and any("\udc80" <= char <= "\udcff" for char in text)


# ---------------------------------------------------------------- Parquet


def _parquet(file: BinaryIO) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    # A buffer: without one, the column chunks of a whole row group are held in memory.
    return pq.ParquetFile(file, buffer_size=PARQUET_BUFFER_BYTES, pre_buffer=False)


def _parquet_rows(file: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Row | BadRow]:
    number = 0
    for batch in _parquet(file).iter_batches(PARQUET_BATCH_ROWS, columns=columns):
        batch = _without_nanoseconds(batch)
        try:
            rows = batch.to_pylist()
        except (ValueError, OverflowError, UnicodeDecodeError):
            rows = None  # one value that Python cannot hold, such as a date in the year 10000
        for i in range(batch.num_rows):
            number += 1
            try:
                yield Row(number, rows[i] if rows is not None else batch.slice(i, 1).to_pylist()[0])
            except (ValueError, OverflowError, UnicodeDecodeError) as error:
                yield BadRow(number, "broken", _at(name, number, f"holds a value that cannot be read ({error})"))


def _without_nanoseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times in microseconds, the finest that Python's own types hold."""
    import pyarrow as pa

    def coarser(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            return pa.timestamp("us", tz=kind.tz)
        if pa.types.is_time64(kind) and kind.unit == "ns":
            return pa.time64("us")
        if pa.types.is_duration(kind) and kind.unit == "ns":
            return pa.duration("us")
        return kind

    schema = pa.schema([field.with_type(coarser(field.type)) for field in batch.schema])
    return batch if schema.equals(batch.schema) else batch.cast(schema, safe=False)
