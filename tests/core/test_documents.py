from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecload.documents import Key, Scalar, key_from_text, key_text, point_id

SCALARS: st.SearchStrategy[Scalar] = st.one_of(
    st.text(st.characters(exclude_categories=())), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False)
)
KEYS: st.SearchStrategy[Key] = st.one_of(SCALARS, st.lists(SCALARS, max_size=3).map(tuple))


def typed(key: Key) -> object:
    """Tells 1 from True and 1.0."""
    return [(type(part), part) for part in key] if isinstance(key, tuple) else (type(key), key)


@given(KEYS)
def test_a_key_survives_its_printable_form(key: Key) -> None:
    text = key_text(key)
    assert typed(key_from_text(text)) == typed(key)
    text.encode("utf-8")
    assert "\0" not in text
    assert "\n" not in text


@given(KEYS, KEYS)
def test_two_keys_never_share_a_form_or_a_point(one: Key, other: Key) -> None:
    if typed(one) != typed(other):
        assert key_text(one) != key_text(other)
        assert point_id("s", one, "h", 0) != point_id("s", other, "h", 0)


@pytest.mark.parametrize("key", ["docs/readme.md", "中文.md", "a b.txt", "über/ß.md"])
def test_a_path_stands_for_itself(key: str) -> None:
    assert key_text(key) == key


def test_point_ids_are_public() -> None:
    """Written down, since another id for the same chunk would double every collection."""
    assert str(uuid.UUID(bytes=point_id("/docs", "a.md", "0" * 32, 0))) == "c0ebd3b8-46c5-5e0a-8426-49579d6760c6"
    assert point_id("/docs", "a.md", "0" * 32, 0) != point_id("/docs", "a.md", "0" * 32, 1)
    assert point_id("/docs", "a.md", "0" * 32, 0) != point_id("/other", "a.md", "0" * 32, 0)
