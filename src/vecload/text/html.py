"""HTML to text with Markdown headings."""

from __future__ import annotations

import codecs
import re
from typing import Any

from vecload.text.clean import clean
from vecload.text.decode import decode
from vecload.text.failure import ParseFailure

_DROPPED = {"script", "style", "noscript", "template", "head", "svg", "iframe"}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_PARAGRAPHS = {
    *("p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "body", "blockquote", "figure"),
    *("ul", "ol", "dl", "table", "form", "fieldset", "details", "address", "figcaption", "caption", "hr", "pre"),
}
_LINES = {"li", "tr", "dt", "dd", "br", "option", "summary", "legend"}
_CELLS = {"td", "th"}

_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_BEGINS = re.compile(rb"\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--.{0,2000}?-->\s*)*<(?:!doctype\s+html|html)\b", re.I | re.S)
_BOM = re.compile(rb"\xef\xbb\xbf")
_SPACE = re.compile(r"[ \t\n\f\xa0]+")
_TAG = re.compile(rb"<(?:!--|/?[a-z][a-z0-9]{0,20}[\s>/])", re.IGNORECASE)


def begins_like_html(head: bytes) -> bool:
    """Whether the content opens with a doctype or an `<html>` tag."""
    head = _ascii(head)
    return _BEGINS.match(_BOM.sub(b"", head, count=1)) is not None


def has_tags(head: bytes) -> bool:
    """Whether there is any tag: a file named .html without one is text."""
    return _TAG.search(_ascii(head)) is not None


def _ascii(head: bytes) -> bytes:
    """The head without what UTF-16 puts around ASCII letters."""
    return head[2:].replace(b"\x00", b"") if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else head


def html_text(content: bytes) -> str:
    """The visible text: headings as Markdown headings, each paragraph, list item and table row on a line of its own.

    Raises ParseFailure("missing_parser") without lxml, ("broken") where elements are nested too deeply to be read
    whole (libxml2 stops at 2,048 levels): half a document must not pass for all of it.
    """
    try:
        import lxml.etree  # type: ignore[import-untyped]  # lxml has no types of its own
        import lxml.html  # type: ignore[import-untyped]
    except ImportError:
        raise ParseFailure("missing_parser", "HTML needs lxml; run: pip install 'vecload[docs]'") from None

    text = clean(_decode_html(content))
    # The parser gets UTF-8 with the encoding named, so that a <meta charset> that is wrong by now is ignored.
    parser = lxml.html.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    try:
        root = lxml.html.document_fromstring(text.encode("utf-8"), parser=parser)
    except lxml.etree.ParserError:  # nothing in it but white space or comments
        return ""
    if any("RESOURCE_LIMIT" in error.type_name for error in parser.error_log):
        raise ParseFailure("broken", "The HTML elements are nested too deeply to be read whole.")
    body = _Writer().write(root)
    title = _SPACE.sub(" ", root.findtext(".//title") or "").strip()
    if title and root.find(".//h1") is None:
        body = f"# {title}\n\n{body}"
    return body.strip()


def _decode_html(content: bytes) -> str:
    """A mark weighs more than what the document says of itself, and that more than a guess."""
    declared = _META_CHARSET.search(content[:4096])
    if declared and not content.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            name = codecs.lookup(declared[1].decode("ascii")).name
        except LookupError:
            return decode(content)
        # The web's rule: who says Latin-1 means Windows-1252. UTF-16 cannot be true, as the tag was read as ASCII.
        name = {"iso8859-1": "cp1252", "ascii": "cp1252"}.get(name, name)
        if not name.startswith(("utf-16", "utf-32")):
            try:
                return content.decode(name)
            except (UnicodeDecodeError, LookupError):
                pass  # LookupError: a codec that is none of text, such as base64
    return decode(content)


class _Writer:
    """Collects the text of a tree in document order, with white space as a browser shows it."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._inline: list[str] = []
        self._gap = ""
        self._prefix = ""
        self._pre: Any = None

    def write(self, root: Any) -> str:
        from lxml.etree import iterwalk

        # A walk that keeps its own stack: recursion would end at Python's limit, which is below libxml2's.
        walk = iterwalk(root, events=("start", "end"))
        for event, element in walk:
            if event == "start" and element.tag in _DROPPED:
                walk.skip_subtree()
            elif event == "start":
                self._start(element)
                self._inline.append(element.text or "")
            else:
                self._end(element)
                self._inline.append(element.tail or "")
        self._break("\n\n")
        return "".join(self._out)

    def _start(self, element: Any) -> None:
        tag = element.tag
        if self._pre is not None:
            if tag == "br":
                self._inline.append("\n")
        elif tag in _PARAGRAPHS or tag in _HEADINGS:
            self._break("\n\n")
            if tag in _HEADINGS:
                self._prefix = "#" * _HEADINGS[tag] + " "
            if tag == "pre":
                self._pre = element
        elif tag in _LINES:
            self._break("\n")
            if tag == "li":
                self._prefix = "- "
        elif tag in _CELLS and element.getprevious() is not None:
            self._inline.append(" | ")

    def _end(self, element: Any) -> None:
        tag = element.tag
        if element is self._pre:
            self._end_pre()
        elif self._pre is None and (tag in _PARAGRAPHS or tag in _HEADINGS):
            self._break("\n\n")
            if tag in _HEADINGS:
                self._prefix = ""
        elif self._pre is None and tag in _LINES:
            self._break("\n")
            self._prefix = "" if tag == "li" else self._prefix

    def _break(self, gap: str) -> None:
        """Ends the running text; the next text is at least `gap` away from it."""
        text = _SPACE.sub(" ", "".join(self._inline)).strip()
        self._inline.clear()
        if text:
            self._append(self._prefix + text)
            self._prefix = ""
        self._gap = max(self._gap, gap)  # "" < one newline < two

    def _end_pre(self) -> None:
        """A fenced block, so that a line of code that begins with `#` is not taken for a heading."""
        code = "".join(self._inline).strip("\n")
        self._inline.clear()
        self._pre = None
        if code.strip():
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
            self._append(f"{self._prefix}\n{fence}\n{code}\n{fence}".lstrip("\n"))
            self._prefix = ""
        self._gap = "\n\n"

    def _append(self, text: str) -> None:
        if self._out:
            self._out.append(self._gap)
        self._out.append(text)
        self._gap = ""
