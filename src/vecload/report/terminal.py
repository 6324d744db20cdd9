"""Text for a person's terminal: nothing in it can move the cursor, and columns stand under each other."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    """`text` on one line, with control characters written as escapes.

    Names and texts come from documents: one with an escape sequence in it must not act on the terminal.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def excerpt(text: str, width: int) -> str:
    """The beginning of `text` with its white space collapsed, at most `width` characters long."""
    # Cut before splitting: a document may be a single line of megabytes.
    words = printable(" ".join(text[: 8 * width].split()))
    return words if len(words) <= width else words[: max(1, width - 1)].rstrip() + "…"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines with a header and aligned columns; numbers stand to the right."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else printable(str(cell)) for cell in row] for row in rows]
    numeric = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(header))]
    widths = [max(len(line[i]) for line in (header, *cells)) for i in range(len(header))]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in (header, *cells)
    ]


def duration(seconds: float) -> str:
    """`7.4 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
