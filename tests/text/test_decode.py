import pytest

from vecload.text.decode import decode
from vecload.text.failure import ParseFailure

FRENCH = "Le garçon a mangé une crêpe à l'été."
RUSSIAN = "Привет, это русский текст для проверки кодировки."
JAPANESE = "これは日本語の文章です。テストのために書きました。"
CHINESE = "这是一个用于测试的中文文本文件。我们希望它能被正确识别。"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_unicode_with_its_mark(encoding: str) -> None:
    assert decode(f"{FRENCH} {CHINESE} 😀".encode(encoding)) == f"{FRENCH} {CHINESE} 😀"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("café", "latin-1"),
        (FRENCH, "latin-1"),
        ("Grüße aus Köln", "latin-1"),
        ("It’s “quoted” – €5", "cp1252"),
        ("Zażółć gęślą jaźń. Wszyscy ludzie rodzą się wolni i równi. " * 5, "cp1250"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (JAPANESE, "cp932"),
        (CHINESE, "gb18030"),
        ("a plain line\n" * 30_000 + FRENCH, "latin-1"),  # what tells the encoding lies behind the sample's size
    ],
)
def test_encodings_without_a_mark(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == text


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
        b"PK\x03\x04\x14\x00\x00\x00\x08\x00",
        b"MZ\x90\x00\x03\x00\x00\x00",
        b"\x7fELF\x02\x01\x01" + bytes(50),
        bytes(range(256)) * 10,
        "no mark".encode("utf-16-le"),
    ],
)
def test_binary_content_is_refused(content: bytes) -> None:
    with pytest.raises(ParseFailure) as failure:
        decode(content)
    assert failure.value.reason == "binary"


@pytest.mark.parametrize("text", ["", "MZ is a district of Prague.", "ID3 tags", "one\x00NUL"])
def test_text_that_only_looks_binary(text: str) -> None:
    assert decode(text.encode()) == text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (("Größe und Übung. " * 50).encode() + b"\xb0" + b" mehr", "Größe und Übung. " * 50 + "\ufffd mehr"),
        (("漢字を書く。" * 20).encode()[:-1], "漢字を書く。" * 19 + "漢字を書く\ufffd"),
    ],
)
def test_damaged_utf8_stays_utf8(content: bytes, text: str) -> None:
    """One stray byte must not turn a whole file into another language."""
    assert decode(content) == text
