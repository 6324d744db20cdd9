import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.minilm import FOLDER
from vecload.errors import UsageError
from vecload.text.chunk import Chunker, ChunkLimits, chunk_limits, content_fingerprint, whole_document
from vecload.text.clean import clean
from vecload.text.tokenise import Tokenizer

TOKENIZER = Tokenizer.load(FOLDER)
SMALL = Chunker(TOKENIZER, max_tokens=24, overlap_tokens=6)
USUAL = Chunker(TOKENIZER, max_tokens=254, overlap_tokens=63)

PIECES = ["# One\n", "## Two\n\n", "### Three ###\n", "Title\n===\n", "```\n# code\n```\n", "- item\n", "| a | b |\n"]
PIECES += [
    "A sentence with a few words. ",
    "word ",
    "\n\n",
    "\n",
    "   ",
    "中文没有空格",
    "😀👩‍👩‍👧 ",
    "x" * 90,
    "\u200b",
    "é",
    "\t",
]
DOCUMENTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=60).map("".join).map(clean)


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS, st.booleans())
def test_chunks_are_exact_pieces_within_the_limit_and_nothing_is_lost(text: str, markdown: bool) -> None:
    chunks = SMALL.chunk(text, markdown)
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    covered = [False] * len(text)
    for chunk in chunks:
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.text.strip()
        covered[chunk.start : chunk.end] = [True] * len(chunk.text)
    assert all(count <= 24 for count in TOKENIZER.counts([chunk.text for chunk in chunks]))
    assert not "".join(char for char, is_in in zip(text, covered, strict=True) if not is_in).strip()
    assert [chunk.start for chunk in chunks] == sorted(chunk.start for chunk in chunks)
    assert SMALL.chunk(text, markdown) == chunks


@pytest.mark.parametrize("text", ["", " ", "\n\t \n"])
def test_white_space_alone_is_no_chunk(text: str) -> None:
    assert USUAL.chunk(text, True) == []
    assert whole_document(text) == []


def test_a_short_document_is_one_chunk() -> None:
    text = "\n# Title\n\nSome text.\n\n## Section\n\nMore.\n"
    (chunk,) = USUAL.chunk(text, True)
    assert chunk.text == text.strip()
    assert chunk.headings == ("Title",)


def test_a_whole_document() -> None:
    (chunk,) = whole_document(" text ")
    assert (chunk.text, chunk.start, chunk.end) == (" text ", 0, 6)


def words(count: int, word: str = "word") -> str:
    return " ".join([word] * count)


def test_sections_are_chunks_and_a_bare_heading_goes_with_what_follows() -> None:
    text = (
        f"# Guide\n\n## Install\n\n{words(10)}\n\n### Linux\n\n{words(12)}\n\n### Mac\n\n{words(12)}\n\n"
        f"## Use\n\n{words(6)}\n\n### Search\n\n{words(6)}\n"
    )
    chunks = SMALL.chunk(text, True)
    assert [(chunk.headings, chunk.text.split("\n")[0]) for chunk in chunks] == [
        (("Guide",), "# Guide"),
        (("Guide", "Install", "Linux"), "### Linux"),
        (("Guide", "Install", "Mac"), "### Mac"),
        (("Guide", "Use"), "## Use"),
    ]
    assert "## Install" in chunks[0].text
    assert "### Search" in chunks[3].text


def test_tiny_sections_are_joined() -> None:
    text = "".join(f"## {number}\n\nFixed.\n\n" for number in range(300))
    chunks = USUAL.chunk(text, True)
    assert len(chunks) < 60
    assert all(TOKENIZER.count(chunk.text) >= 254 // 8 for chunk in chunks[:-1])


def test_a_long_section_is_cut_between_sentences_with_overlap() -> None:
    text = "".join(f"This is the sentence number {number} of them. " for number in range(60)).strip()
    chunks = SMALL.chunk(text, True)
    assert all(chunk.text.endswith(".") for chunk in chunks)
    wide = Chunker(TOKENIZER, max_tokens=64, overlap_tokens=16).chunk(text, True)
    assert all(after.start < before.end for before, after in pairwise(wide))
    none = Chunker(TOKENIZER, max_tokens=64, overlap_tokens=0).chunk(text, True)
    assert all(after.start >= before.end for before, after in pairwise(none))


def test_plain_text_has_no_headings() -> None:
    text = f"# a comment\n{words(30)}"
    assert {chunk.headings for chunk in SMALL.chunk(text, False)} == {()}


def section(number: int, length: int) -> str:
    return (
        f"## Section {number}\n\n"
        + "".join(f"Topic {number} has the detail {k} here. " for k in range(length))
        + "\n\n"
    )


@pytest.mark.parametrize("length", [6, 12, 60])
@pytest.mark.parametrize("changed_length", [5, 14, 70])
def test_a_changed_section_leaves_the_chunks_around_it_alone(length: int, changed_length: int) -> None:
    sections = [section(number, length) for number in range(60)]
    before = {chunk.text for chunk in USUAL.chunk("# Manual\n\n" + "".join(sections), True)}
    sections[30] = section(30, changed_length).replace("detail", "fact")
    after = {chunk.text for chunk in USUAL.chunk("# Manual\n\n" + "".join(sections), True)}
    own = len(USUAL.chunk(sections[30], True))
    assert len(after - before) <= own + 2


def test_one_changed_paragraph_changes_at_most_three_chunks() -> None:
    sections = [section(number, 12) for number in range(60)]
    before = {chunk.text for chunk in USUAL.chunk("# Manual\n\n" + "".join(sections), True)}
    sections[30] = sections[30].replace("has the detail 5", "has, as was found out in spring, quite another detail")
    after = {chunk.text for chunk in USUAL.chunk("# Manual\n\n" + "".join(sections), True)}
    assert 1 <= len(after - before) <= 3


@pytest.mark.parametrize("text", ["x" * 300_000, "aB3/" * 20_000, words(60_000), "中文" * 8_000, ">" * 20_000 + " a"])
def test_text_without_natural_borders_is_cut_within_the_limits(text: str) -> None:
    chunks = USUAL.chunk(text, True)
    assert all(len(chunk.text) <= 254 * 32 for chunk in chunks)
    assert all(count <= 254 for count in TOKENIZER.counts([chunk.text for chunk in chunks]))
    assert chunks[-1].end == len(text)


def test_default_limits_follow_the_model() -> None:
    assert chunk_limits(256, 2, 0) == ChunkLimits(254, 63)
    assert chunk_limits(32_768, 2, 10) == ChunkLimits(512, 64)
    assert chunk_limits(512, 2, 30) == ChunkLimits(480, 64)
    assert chunk_limits(512, 2, 0, 100) == ChunkLimits(100, 25)
    assert chunk_limits(512, 2, 0, 100, 0) == ChunkLimits(100, 0)


@pytest.mark.parametrize(("arguments", "named"), [((64, 2, 62), "prompt"), ((64, 2, 0, 0), "max_tokens")])
def test_limits_that_cannot_be_kept_are_refused(arguments: tuple[int, ...], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        chunk_limits(*arguments)


def test_more_overlap_than_a_quarter_is_refused() -> None:
    with pytest.raises(UsageError, match="overlap_tokens must be at most a quarter"):
        chunk_limits(512, 2, 0, 100, 26)


def test_the_fingerprint_changes_with_what_decides_the_chunks() -> None:
    prints = {
        content_fingerprint(ChunkLimits(254, 63), "a" * 64),
        content_fingerprint(ChunkLimits(254, 62), "a" * 64),
        content_fingerprint(ChunkLimits(253, 63), "a" * 64),
        content_fingerprint(ChunkLimits(254, 63), "b" * 64),
        content_fingerprint(None, "a" * 64),
    }
    assert len(prints) == 5
    assert content_fingerprint(None, "a" * 64) == content_fingerprint(None, "b" * 64)
    assert {"cleaner", "chunker", "parsers"} <= set(json.loads(content_fingerprint(None, "")))
