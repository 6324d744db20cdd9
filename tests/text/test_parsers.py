from pathlib import Path

import pytest

from vecload.text.failure import ParseFailure
from vecload.text.html import html_text
from vecload.text.parsers import BUILTIN, HEAD_BYTES, choose
from vecload.text.pdf import pdf_text

HANDBOOK_PDF = next((Path(__file__).parents[2] / "examples/handbook").glob("*.pdf"))
PAGE = b"<!DOCTYPE html><html><body><p>x</p></body></html>"


@pytest.mark.parametrize(
    ("name", "content", "parser"),
    [
        ("a.txt", b"plain", "text"),
        ("README", b"plain", "text"),
        ("a.MD", b"# Title", "markdown"),
        ("a.md", b"<p align=center><img src=logo.png></p>\n\n# Title", "markdown"),
        ("a.md", b"<!-- a comment -->\n# Title", "markdown"),
        ("a.html", b"<p>fragment", "html"),
        ("a.html", b"no tag at all, 1 < 2", "text"),
        ("a.txt", PAGE, "html"),
        ("a.txt", b"\xef\xbb\xbf\n <!-- c --> <html lang=en>", "html"),
        ("a.txt", PAGE.decode().encode("utf-16"), "html"),
        ("a.txt", b"How to write <html> by hand", "text"),
        ("a.txt", b"%PDF-1.7\n", "pdf"),
        ("a.txt", b"A PDF begins with %PDF-1.7", "text"),
        ("a.pdf", b"a text under a wrong name", "text"),
        ("a.pdf", b"\0\x01\x02\x03broken from its first byte", "pdf"),
        ("a.pdf", b"a few bytes, then %PDF-1.7\n", "pdf"),
        ("folder.pdf/notes", b"plain", "text"),
    ],
)
def test_the_content_decides_where_the_name_lies(name: str, content: bytes, parser: str) -> None:
    assert choose(name, content[:HEAD_BYTES], BUILTIN).name == parser


def test_html_keeps_what_a_reader_sees() -> None:
    page = b"""<html><head><title>Caf&eacute; guide</title><style>p {color: red}</style></head><body>
      <script>alert("no")</script><noscript>no</noscript><template><p>no</p></template>
      <p>Hello <b>wor</b>ld,
         again.<br>Next</p><h2><a href="#">Install</a></h2>
      <ul><li>one<li>two &amp; three</ul>
      <table><tr><th>key<th>value<tr><td>a<td>1</table>
      <pre>
# not a heading
    kept  <i>as is</i></pre>the end</body></html>"""
    assert html_text(page) == (
        "# Café guide\n\nHello world, again.\nNext\n\n## Install\n\n- one\n- two & three\n\n"
        "key | value\na | 1\n\n```\n# not a heading\n    kept  as is\n```\n\nthe end"
    )


def test_an_html_title_is_no_second_first_heading() -> None:
    assert html_text(b"<title>Site</title><h1>Page</h1><p>text") == "# Page\n\ntext"


@pytest.mark.parametrize("content", [b"", b"<!-- only a comment -->", b"<html><body> \n </body></html>"])
def test_html_without_text(content: bytes) -> None:
    assert html_text(content) == ""


@pytest.mark.parametrize(
    "content",
    [
        "<meta charset='latin-1'><p>été – €</p>".encode("cp1252"),
        "<meta http-equiv=content-type content='text/html; charset=windows-1252'><p>été – €</p>".encode("cp1252"),
        "<meta charset=latin-1><p>été – €</p>".encode("utf-8-sig"),
        "<meta charset=latin-1><p>été – €</p>".encode("utf-16"),
        "<meta charset=no-such><p>été – €</p>".encode(),
        "<meta charset=base64><p>été – €</p>".encode(),
        "<?xml version='1.0' encoding='latin-1'?><html><p>été – €</p></html>".encode(),
    ],
)
def test_html_in_any_encoding(content: bytes) -> None:
    assert html_text(content) == "été – €"


def test_html_nested_too_deeply_is_broken_and_not_half_a_document() -> None:
    with pytest.raises(ParseFailure, match="nested") as failure:
        html_text(b"<div>" * 5000 + b"deep" + b"</div>" * 5000 + b"<p>behind</p>")
    assert failure.value.reason == "broken"


def test_html_nested_as_real_pages_are() -> None:
    assert html_text(b"<div>" * 1000 + b"deep" + b"</div>" * 1000 + b"<p>behind</p>") == "deep\n\nbehind"


def test_pdf_pages_are_apart() -> None:
    text = pdf_text(HANDBOOK_PDF.read_bytes())
    assert "\r" not in text
    assert "\n\n" in text
    assert "coffee machine" in text.lower()


def pdf(extra_trailer: bytes = b"") -> bytes:
    """A PDF of one empty page, as a scanner without text recognition would leave it."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>"]
    objects.append(b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]>>")
    body = b"%PDF-1.4\n" + b"".join(b"%d 0 obj%sendobj\n" % item for item in enumerate(objects, 1))
    return body + b"trailer<</Root 1 0 R/Size 4" + extra_trailer + b">>\n%%EOF"


def test_pdf_without_text() -> None:
    assert pdf_text(pdf()) == ""


def test_pdf_with_a_password() -> None:
    key = b"(" + b"k" * 32 + b")"
    encrypt = b"/Encrypt<</Filter/Standard/V 1/R 2/O %s/U %s/P -4>>/ID[(a)(a)]" % (key, key)
    with pytest.raises(ParseFailure) as failure:
        pdf_text(pdf(encrypt))
    assert failure.value.reason == "encrypted"


def test_broken_pdf() -> None:
    with pytest.raises(ParseFailure) as failure:
        pdf_text(b"%PDF-1.7\n" + b"garbage" * 100)
    assert failure.value.reason == "broken"
