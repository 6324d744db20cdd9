"""Cuts a document's text into chunks by the model's own tokens, on natural borders."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vecload.documents import Chunk, Json
from vecload.errors import UsageError
from vecload.text.clean import CLEANER_VERSION
from vecload.text.headings import Heading, find_headings, path_at
from vecload.text.parsers import versions

if TYPE_CHECKING:
    from vecload.text.tokenise import Tokenizer

CHUNKER_VERSION = 1
"""Raised whenever some text gives other chunks."""

DEFAULT_MAX_TOKENS = 512
DEFAULT_OVERLAP_TOKENS = 64

_BLOCK_CHARACTERS = 32_768
"""The splitter gets blocks of at most this size: its cost grows faster than its input (a line of a million characters
takes twice as long for each of them as one of 64,000), and it works on several blocks at once. For limits over 512
tokens a block is larger, so that few chunks end where a block does."""

_CHARACTERS_PER_TOKEN = 32
"""A chunk has at most this many characters for each token of the limit. Tokens alone do not bound it: to WordPiece an
endless word is a single [UNK]. Languages have three to five, so no text in one is cut by this."""

_SMALL = 8
"""Sections under an eighth of max_tokens are joined with those that follow, so that a list of one-line sections does
not become as many points."""


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    max_tokens: int
    """A chunk's own tokens, special ones and the prompt not counted."""
    overlap_tokens: int


def chunk_limits(
    model_limit: int,
    special_tokens: int,
    prompt_tokens: int,
    max_tokens: int | None = None,
    overlap_tokens: int | None = None,
) -> ChunkLimits:
    """The limits to chunk by; None means the default.

    Default: min(512, what the model takes less prompt and special tokens), and an overlap of 64 or a quarter of that.
    Raises UsageError where nothing is left of the limit, or where the overlap is more than a quarter.
    """
    room = model_limit - special_tokens - prompt_tokens
    if room < 1:
        raise UsageError(
            f"The document prompt ({prompt_tokens} tokens) leaves no room in the model's {model_limit} tokens; "
            "shorten the prompt."
        )
    if max_tokens is None:
        max_tokens = min(DEFAULT_MAX_TOKENS, room)
    if not 1 <= max_tokens <= room:
        raise UsageError(
            f"chunk.max_tokens must be from 1 to {room}, which the model takes beside prompt and special tokens, "
            f"not {max_tokens}."
        )
    if overlap_tokens is None:
        overlap_tokens = min(DEFAULT_OVERLAP_TOKENS, max_tokens // 4)
    if not 0 <= overlap_tokens <= max_tokens // 4:
        raise UsageError(
            f"chunk.overlap_tokens must be at most a quarter of chunk.max_tokens, here {max_tokens // 4}, "
            f"not {overlap_tokens}."
        )
    return ChunkLimits(max_tokens, overlap_tokens)


def content_fingerprint(limits: ChunkLimits | None, tokenizer_hash: str) -> str:
    """What decides a document's chunks beside its bytes, as short JSON; None: whole documents, which no tokenizer cuts.

    All installed parsers count, since which one a document meets is known only when it is parsed.
    """
    fingerprint: dict[str, Json] = {"cleaner": CLEANER_VERSION, "chunker": CHUNKER_VERSION, "parsers": versions()}
    if limits is None:
        fingerprint["chunk"] = "none"
    else:
        fingerprint |= {"max_tokens": limits.max_tokens, "overlap_tokens": limits.overlap_tokens}
        fingerprint["tokenizer"] = tokenizer_hash[:16]
    return json.dumps(fingerprint, separators=(",", ":"))


def whole_document(text: str) -> list[Chunk]:
    """The document as one chunk; none where there is only white space."""
    return [Chunk(text, 0, 0, len(text))] if text.strip() else []


class Chunker:
    """Cuts text where its meaning has borders. Deterministic and thread-safe.

    Markdown is first cut at its headings: a section with all its subsections is one chunk where it fits, else its own
    text and each subsection are looked at in turn. So a change moves no border outside of its section, and the other
    chunks keep their vectors. Sections over the limit, and all text without headings, are cut between paragraphs,
    sentences, words or characters, whichever is the largest unit that fits; only there do chunks overlap.
    """

    def __init__(self, tokenizer: Tokenizer, max_tokens: int, overlap_tokens: int) -> None:
        from semantic_text_splitter import MarkdownSplitter, TextSplitter

        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._max_characters = max_tokens * _CHARACTERS_PER_TOKEN
        self._text = TextSplitter.from_huggingface_tokenizer(tokenizer.raw, max_tokens, overlap_tokens)
        self._markdown = MarkdownSplitter.from_huggingface_tokenizer(tokenizer.raw, max_tokens, overlap_tokens)

    def chunk(self, text: str, markdown: bool) -> list[Chunk]:
        """The chunks of a cleaned text, in order; `markdown` says whether it has Markdown headings and blocks.

        Every character but white space is in a chunk, each chunk is `text[start:end]` and has at most max_tokens
        tokens (a single character that is more tokens than that stands alone).
        """
        headings = find_headings(text) if markdown else []
        whole = _trim(text, 0, len(text))
        if self._fits(text[slice(*whole)]):
            spans = [whole] if whole[0] < whole[1] else []
        else:
            spans = list(self._bounded(text, list(self._pieces(text, headings, markdown))))
        return [
            Chunk(text[start:end], ordinal, start, end, path_at(headings, start))
            for ordinal, (start, end) in enumerate(spans)
        ]

    def _fits(self, text: str) -> bool:
        return len(text) <= self._max_characters and self._tokenizer.count(text) <= self._max_tokens

    def _pieces(self, text: str, headings: list[Heading], markdown: bool) -> Iterator[tuple[int, int]]:
        for start, end, fits in self._sections(text, headings):
            if fits:
                yield start, end
            else:
                yield from self._split(text, start, end, markdown)

    def _sections(self, text: str, headings: list[Heading]) -> Iterator[tuple[int, int, bool]]:
        """(start, end, whether it fits into one chunk) of the sections that the text is cut into."""
        # Section 0 is what stands before the first heading, often nothing; all others are under it.
        borders = [0, *(heading.start for heading in headings), len(text)]
        levels = [0, *(heading.level for heading in headings)]
        bodies = [0, *(heading.body for heading in headings)]
        counts = self._tokenizer.counts([text[a:b] for a, b in itertools.pairwise(borders)])
        total = [0]
        for count in counts:
            total.append(total[-1] + count)
        outline = _Outline(text, borders, levels, bodies, total, self._max_tokens)
        for start, end in outline.pieces(0, 0, len(levels)):
            yield borders[start], borders[end], outline.tokens(start, end) <= self._max_tokens

    def _split(self, text: str, start: int, end: int, markdown: bool) -> Iterator[tuple[int, int]]:
        blocks = list(_blocks(text, start, end, max(_BLOCK_CHARACTERS, 2 * self._max_characters)))
        splitter = self._markdown if markdown else self._text
        # It runs on all cores and lets other Python threads go on.
        pieces = splitter.chunk_all_indices([text[a:b] for a, b in blocks])
        for (block, _), found in zip(blocks, pieces, strict=True):
            for offset, piece in found:
                yield block + offset, block + offset + len(piece)

    def _bounded(self, text: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The spans without white space around them, halved where they are over a limit after all.

        Tokens are counted in context before: a piece can have a token more when it stands alone.
        """
        trimmed = [span for span in (_trim(text, *span) for span in spans) if span[0] < span[1]]
        counts = self._tokenizer.counts(
            [text[start : min(end, start + self._max_characters)] for start, end in trimmed]
        )
        for (start, end), count in zip(trimmed, counts, strict=True):
            if end - start == 1 or (end - start <= self._max_characters and count <= self._max_tokens):
                yield start, end
            else:
                middle = _border(text, start + (end - start) // 4, start + (end - start + 1) // 2)
                yield from self._bounded(text, [(start, middle), (middle, end)])


@dataclass(frozen=True, slots=True)
class _Outline:
    """Sections as a flat list: section i is `borders[i]` to `borders[i + 1]`, up to the next heading of any level."""

    text: str
    borders: list[int]
    levels: list[int]
    bodies: list[int]
    total: list[int]
    max_tokens: int

    def tokens(self, start: int, end: int) -> int:
        return self.total[end] - self.total[start]

    def pieces(self, start: int, head: int, end: int) -> Iterator[tuple[int, int]]:
        """Cuts sections `start` to `end`, of which `head` is the parent of those behind it.

        `start` is before `head` where a heading without text of its own goes with its first subsection.
        """
        if self.tokens(start, end) <= self.max_tokens or head + 1 == end:
            yield start, end
            return
        run = start
        if self._has_text(head):
            yield start, head + 1
            run = head + 1
        # `run` is where the small sections begin that wait to be joined with the next one.
        child = head + 1
        while child < end:
            behind = child + 1
            while behind < end and self.levels[behind] > self.levels[child]:
                behind += 1
            if self.tokens(run, behind) > self.max_tokens:
                if run < child and not self._is_bare(run, child):
                    yield run, child
                    run = child
                yield from self.pieces(run, child, behind)
                run = behind
            elif self.tokens(run, behind) * _SMALL >= self.max_tokens:
                yield run, behind
                run = behind
            child = behind
        if run < end:
            yield run, end

    def _has_text(self, section: int) -> bool:
        return bool(self.text[self.bodies[section] : self.borders[section + 1]].strip())

    def _is_bare(self, start: int, end: int) -> bool:
        return not any(self._has_text(section) for section in range(start, end))


def _blocks(text: str, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    while end - start > size:
        border = _border(text, start + size // 2, start + size)
        yield start, border
        start = border
    yield start, end


def _border(text: str, low: int, high: int) -> int:
    """The best place to cut from `low` to `high`: behind the last paragraph, line, sentence or word; else `high`."""
    for mark in ("\n\n", "\n", ". ", " "):
        found = text.rfind(mark, low, high)
        if found >= 0:
            return found + len(mark)
    return high


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - (len(piece) - len(piece.rstrip()))
