"""Bytes to text: byte order marks, then UTF-8, then a guess from a sample."""

from __future__ import annotations

import codecs
import re

from vecload.text.failure import ParseFailure

_BOMS = (
    # UTF-32's little-endian mark begins with UTF-16's, so it is looked for first.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_SAMPLE = 256 << 10
"""How much the guess looks at: a 50 MB file costs no more than a 256 KB one."""

_MAGIC: dict[bytes, str] = {
    b"\x89PNG\r\n": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF87a": "a GIF image",
    b"GIF89a": "a GIF image",
    b"RIFF": "a RIFF media file",
    b"PK\x03\x04": "a ZIP archive or an office document",
    b"PK\x05\x06": "a ZIP archive",
    b"\x1f\x8b": "gzip data",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ\x00": "xz data",
    b"\x28\xb5\x2f\xfd": "zstandard data",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"\x7fELF": "a program",
    b"\xcf\xfa\xed\xfe": "a program",
    b"MZ": "a Windows program",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old office document",
    b"SQLite format 3\x00": "an SQLite database",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"OggS": "an Ogg media file",
    b"ID3": "an MP3 file",
    b"%PDF-": "a PDF",
}


def decode(content: bytes) -> str:
    """The text of `content` in whatever encoding it is. Raises ParseFailure("binary") if it is no text.

    A text in a mark's encoding with a broken end keeps what can be read, with U+FFFD for the rest: the mark leaves no
    doubt about what was meant.
    """
    for bom, encoding in _BOMS:
        if content.startswith(bom):
            return content[len(bom) :].decode(encoding, errors="replace")
    refuse_binary(content)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        damaged = content.decode("utf-8", errors="replace")
        if _is_damaged_utf8(damaged):
            return damaged
        return content.decode(guess_encoding(content), errors="replace")


def _is_damaged_utf8(text: str) -> bool:
    """Whether a text that was read as UTF-8 is, but for a few bytes: a file cut inside a character, a stray byte.

    In other encodings hardly any two bytes happen to be a character of UTF-8.
    """
    beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
    broken = text.count("\ufffd")
    return beyond_ascii - broken > 3 * broken


def refuse_binary(content: bytes) -> None:
    """Raises ParseFailure("binary") for a known binary format, or where NUL and control bytes are frequent."""
    head = content[:4096]
    for magic, what in _MAGIC.items():
        # Short magic numbers are also how a plain text may begin ("MZ", "PAR1", "ID3"): they need binary bytes behind.
        if content.startswith(magic) and (not magic.isascii() or not magic.isalnum() or _control_bytes(head) > 0):
            raise ParseFailure("binary", f"The content is {what}, which no installed parser reads.")
    sample = content[:_SAMPLE]
    # A NUL that strayed into a text is removed by clean(), also where the text is short.
    controls = _control_bytes(sample)
    if controls > 3 and controls * 20 > len(sample):
        raise ParseFailure("binary", "The content is binary data, not text, and no installed parser reads it.")


_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b\b"))


def _control_bytes(data: bytes) -> int:
    return len(data) - len(data.translate(None, _CONTROLS))


_LATIN = ["cp1252", "cp1250"]
_ENCODINGS = ["gb18030", "big5", "cp932", "euc_jp", "cp949", "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256", *_LATIN]
"""What files without a mark really come in. Left to all it knows, the detector reads `café` as UTF-16."""

_HIGH_RUNS = re.compile(rb"[\x80-\xff]{3,}")


def guess_encoding(content: bytes) -> str:
    """An encoding for `content`, which is not UTF-8, from a sample of it.

    In Latin scripts accented letters stand alone among ASCII ones; in the others they come in rows. That tells them
    apart also in a text too short for the detector's statistics.
    """
    from charset_normalizer import from_bytes

    first_high = re.search(rb"[\x80-\xff]", content)
    start = max(0, first_high.start() - 1024) if first_high else 0
    sample = content[start : start + _SAMPLE]
    high = len(sample) - len(sample.translate(None, bytes(range(128, 256))))
    in_rows = sum(len(row) for row in _HIGH_RUNS.findall(sample))
    if high * 10 < len(sample) * 3 and in_rows * 2 < high:
        matches = {
            name: match for match in from_bytes(sample, cp_isolation=_LATIN) for name in match.could_be_from_charset
        }
        western, central = matches.get("cp1252"), matches.get("cp1250")
        if central and (not western or (-central.chaos, central.coherence) > (-western.chaos, western.coherence)):
            return "cp1250"
        return "cp1252"
    best = from_bytes(sample, cp_isolation=_ENCODINGS).best()
    return best.encoding if best is not None else "cp1252"
