import pytest

from vecload.text.headings import find_headings, path_at


def paths(text: str) -> list[tuple[str, ...]]:
    return [heading.path for heading in find_headings(text)]


def test_the_path_follows_the_levels() -> None:
    text = "intro\n# A\n## B\n#### C\n## D\n# E\n"
    assert paths(text) == [("A",), ("A", "B"), ("A", "B", "C"), ("A", "D"), ("E",)]
    headings = find_headings(text)
    assert path_at(headings, 0) == ()
    assert path_at(headings, text.index("# A")) == ("A",)
    assert path_at(headings, len(text)) == ("E",)


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("# Closed ##", ["Closed"]),
        ("   ## Indented", ["Indented"]),
        ("    # code", []),
        ("#hashtag", []),
        ("####### seven", []),
        ("# C#", ["C#"]),
        ("Title\n=====\n\nSub\n---\n", ["Title", "Sub"]),
        ("# A\nB\n---", ["A", "B"]),
        ("text\n\n---\n\nmore", []),
        ("two lines\nof a paragraph\n---", []),
        ("- item\n---", []),
        ("| a | b |\n---", []),
        ("---\ntitle: x\n---\n# A", ["A"]),
        ("```sh\n# comment\n```\n# A", ["A"]),
        ("~~~\n# no\n```\n# no\n~~~\n# A", ["A"]),
        ("````\n```\n# no\n````\n# A", ["A"]),
        ("```\n# never closed", []),
        ("`` ` `` inline\n# A", ["A"]),
        ("```inline``` code\n# A", ["A"]),
    ],
)
def test_what_is_a_heading(text: str, titles: list[str]) -> None:
    assert [path[-1] for path in paths(text)] == titles


def test_an_endless_line_is_no_endless_title() -> None:
    assert len(paths("# " + "x" * 100_000)[0][0]) == 200
