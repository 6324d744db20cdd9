"""The headings of a Markdown text."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

_MARKS = re.compile(
    r"^ {0,3}(?:"
    r"(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)"
    r"|(?P<atx>\#{1,6})(?:[ \t]+(?P<title>[^\n]*))?"
    r"|(?P<underline>=+|-+)[ \t]*"
    r")$",
    re.MULTILINE,
)
_CLOSING = re.compile(r"(?:^|[ \t])#+$")
_FRONT_MATTER = re.compile(r"---[ \t]*\n(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_NOT_A_TITLE = re.compile(r" {4}|\t| {0,3}(?:[-*+>|]|\d{1,9}[.)][ \t]|#{1,6}(?:[ \t]|$))")

_TITLE_CHARACTERS = 200
"""The path goes into the payload of each chunk, and a `#` before an endless line makes that line a title."""


@dataclass(frozen=True, slots=True)
class Heading:
    start: int
    """The offset of its first line."""
    body: int
    """The offset behind its last line."""
    level: int
    path: tuple[str, ...]
    """The titles of the headings that it stands under, and its own."""


def find_headings(text: str) -> list[Heading]:
    """ATX and one-line setext headings, in order; not those in fenced code or YAML front matter."""
    headings: list[Heading] = []
    above: list[tuple[int, str]] = []
    fence = ""
    front_matter = _FRONT_MATTER.match(text)
    for mark in _MARKS.finditer(text, front_matter.end() if front_matter else 0):
        if mark["fence"]:
            if not fence and not (mark["fence"][0] == "`" and "`" in mark["info"]):
                fence = mark["fence"]
            elif fence and mark["fence"].startswith(fence) and not mark["info"].strip():
                fence = ""
            continue
        if fence:
            continue
        if mark["atx"]:
            level, start = len(mark["atx"]), mark.start()
            title = _CLOSING.sub("", (mark["title"] or "").strip()).strip()
        else:
            level = 1 if mark["underline"][0] == "=" else 2
            start = text.rfind("\n", 0, max(mark.start() - 1, 0)) + 1
            title = text[start : mark.start()].strip()
            if not title or _NOT_A_TITLE.match(text, start) or not _begins_paragraph(text, start, headings):
                continue
        while above and above[-1][0] >= level:
            above.pop()
        above.append((level, title[:_TITLE_CHARACTERS]))
        body = min(mark.end() + 1, len(text))
        headings.append(Heading(start, body, level, tuple(name for _, name in above if name)))
    return headings


def _begins_paragraph(text: str, start: int, headings: list[Heading]) -> bool:
    """Whether the line above `start` is blank, a heading, or none."""
    if start == 0 or (headings and headings[-1].body == start):
        return True
    return not text[text.rfind("\n", 0, start - 1) + 1 : start - 1].strip()


def path_at(headings: list[Heading], offset: int) -> tuple[str, ...]:
    """The heading path in force at `offset`."""
    index = bisect_right(headings, offset, key=lambda heading: heading.start)
    return headings[index - 1].path if index else ()
