"""The built-in parsers, and which parser takes a document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from vecload.documents import Json
from vecload.errors import MissingDependencyError
from vecload.text.clean import clean
from vecload.text.decode import decode
from vecload.text.failure import ParseFailure
from vecload.text.html import begins_like_html, has_tags, html_text
from vecload.text.pdf import pdf_text

if TYPE_CHECKING:
    from vecload.contracts import Parser

HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ParsedText:
    """A document's text, cleaned (see `vecload.text.clean`), and what made it."""

    text: str
    parser_name: str
    parser_version: int

    @property
    def markdown(self) -> bool:
        """Whether lines that begin with `#` are headings: not in plain text, nor on the pages of a PDF."""
        return self.parser_name not in (TEXT.name, PDF.name)


@dataclass(slots=True, eq=False)
class BuiltinParser:
    """A `vecload.contracts.Parser` made of two functions."""

    name: str
    version: int
    suffixes: tuple[str, ...]
    read: Callable[[bytes], str]
    recognise: Callable[[bytes], bool]
    extra: str | None = None

    def matches(self, head: bytes) -> bool:
        return self.recognise(head)

    def parse(self, content: bytes) -> str:
        return self.read(content)


def _never(head: bytes) -> bool:
    return False


TEXT = BuiltinParser("text", 1, (".txt", ".text", ".log"), read=decode, recognise=_never)
"""What no other parser takes; it refuses binary content."""

MARKDOWN = BuiltinParser("markdown", 1, (".md", ".markdown", ".mdown", ".mkd"), read=decode, recognise=_never)
"""Markdown as it stands, with its marks: models were trained on it, and the chunker reads its headings."""

HTML = BuiltinParser("html", 1, (".html", ".htm", ".xhtml"), read=html_text, recognise=begins_like_html, extra="docs")

PDF = BuiltinParser(
    # Only at the start: a text about the format names the mark too. Some PDFs have a few bytes before it; for those the
    # suffix decides.
    "pdf",
    1,
    (".pdf",),
    read=pdf_text,
    recognise=lambda head: head.lstrip().startswith(b"%PDF-"),
    extra="docs",
)

BUILTIN: tuple[Parser, ...] = (TEXT, MARKDOWN, HTML, PDF)


def _is_text(head: bytes) -> bool:
    try:
        decode(head)
    except ParseFailure:
        return False
    return True


def choose(name: str, head: bytes, parsers: Sequence[Parser]) -> Parser:
    """The parser for a document called `name` whose content begins with `head` (its first 4 KiB).

    What the content shows weighs more than the name: a PDF named `.txt` is a PDF. Where several know the content, the
    one with the name's suffix wins, then others' parsers before the built-in ones. The suffix decides for content that
    no parser knows, but .html without a tag is text, and so is a text named .pdf.
    """
    suffix = name[name.rfind(".") :].lower() if "." in name else ""
    ranked = sorted(parsers, key=lambda parser: (suffix not in parser.suffixes, isinstance(parser, BuiltinParser)))
    known = [parser for parser in ranked if parser.matches(head)]
    if known:
        return known[0]
    named = next((parser for parser in ranked if suffix in parser.suffixes), None)
    if named is None or (named.name == HTML.name and not has_tags(head)):
        return TEXT
    if named.name == PDF.name and b"%PDF-" not in head and _is_text(head):
        return TEXT
    return named


def parse_with(parser: Parser, content: bytes) -> ParsedText:
    """Raises ParseFailure, whatever the parser raised."""
    try:
        text = parser.parse(content)
    except ParseFailure:
        raise
    except MemoryError:
        raise ParseFailure("memory", f"The {parser.name} parser ran out of the memory that it may use.") from None
    except MissingDependencyError as error:
        raise ParseFailure("missing_parser", str(error)) from error
    except Exception as error:
        reason = " ".join(clean(str(error)).split())[:300] or type(error).__name__
        raise ParseFailure("broken", f"The {parser.name} parser cannot read it: {reason}") from error
    if not isinstance(text, str):
        raise ParseFailure("broken", f"The {parser.name} parser gave {type(text).__name__} instead of text.")
    return ParsedText(clean(text), parser.name, parser.version)


def installed() -> list[EntryPoint]:
    """The entry points of all installed parsers, not imported yet, in a fixed order."""
    return sorted(entry_points(group="vecload.parsers"), key=lambda point: (point.name, point.value))


def versions() -> dict[str, Json]:
    """What each installed parser is, so that documents are chunked again when one of them changes."""
    own: dict[str, Json] = {parser.name: parser.version for parser in BUILTIN}
    foreign = filter(is_foreign, installed())
    return own | {point.name: f"{point.value} {point.dist.version if point.dist else ''}" for point in foreign}


def is_foreign(point: EntryPoint) -> bool:
    return not point.value.startswith("vecload.")
