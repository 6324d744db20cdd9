import datetime
import json
import uuid
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecload.text.clean import clean, json_value

ANY_TEXT = st.text(st.characters())  # lone surrogates and NUL included

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    ANY_TEXT,
    st.binary(max_size=20),
    st.decimals(),
    st.uuids(),
    st.datetimes(),
    st.dates(),
    st.times(),
    st.floats().map(np.float64),
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.frozensets(ANY_TEXT, max_size=4),
        st.dictionaries(st.one_of(ANY_TEXT, st.integers()), inner, max_size=4),
    ),
    max_leaves=12,
)


@given(ANY_TEXT)
def test_cleaned_text_is_fit_for_every_store_and_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode("utf-8")
    assert not set(cleaned) & {"\x00", "\r"}
    assert clean(cleaned) == cleaned


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a\x00b", "ab"),
        ("\ufeffa\ufeff", "a\ufeff"),
        ("a\r\nb\rc\n", "a\nb\nc\n"),
        ("a\ud800b", "a\ufffdb"),
        ("  tab\t😀 \u200b\n\n\n", "  tab\t😀 \u200b\n\n\n"),
    ],
)
def test_only_what_no_store_takes_is_changed(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@given(VALUES)
def test_metadata_becomes_json_and_stays_as_it_is(value: object) -> None:
    result = json_value(value)
    raw = json.dumps(result, allow_nan=False, ensure_ascii=False)
    raw.encode("utf-8")
    assert "\\u0000" not in raw
    assert json_value(result) == result


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (True, True),
        (2**63 - 1, 2**63 - 1),
        (2**63, "9223372036854775808"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (Decimal("1.50"), "1.50"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x00\xff", "AP8="),
        (datetime.date(2026, 2, 3), "2026-02-03"),
        (datetime.datetime(2026, 2, 3, 4, 5, tzinfo=datetime.UTC), "2026-02-03T04:05:00+00:00"),
        (np.float32(0.5), 0.5),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.datetime64("2026-02-03T04:05:06.000000007"), "2026-02-03T04:05:06.000000007"),
        ({"b", "a"}, ["a", "b"]),
        ({1: "x", "1": "y"}, {"1": "x", "1_": "y"}),
        ({"k\x00": ("a\x00", None)}, {"k": ["a", None]}),
        (range(2), "range(0, 2)"),
    ],
)
def test_each_type_of_metadata(value: object, result: object) -> None:
    given_back = json_value(value)
    assert given_back == result
    assert type(given_back) is type(result)


def test_a_list_that_holds_itself_ends() -> None:
    endless: list[object] = []
    endless.append(endless)
    json.dumps(json_value(endless))
