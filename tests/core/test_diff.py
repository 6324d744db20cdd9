from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vecload.diff import canonical, diff, document_text_hash, payload_hash

IDS = st.integers(0, 20).map(lambda n: bytes([n]) * 16)
HASHES = st.integers(0, 3).map(lambda n: bytes([n]) * 8)


@given(st.dictionaries(IDS, HASHES), st.dictionaries(IDS, HASHES))
def test_following_the_diff_leads_to_what_is_desired(desired: dict[bytes, bytes], known: dict[bytes, bytes]) -> None:
    wanted = list(desired.items())
    changes = diff(wanted, known)
    result = {point: payload for point, payload in known.items() if point not in changes.stale}
    for position in (*changes.embed, *changes.update):
        point, payload = wanted[position]
        result[point] = payload
    assert result == desired
    assert changes.unchanged + len(changes.embed) + len(changes.update) == len(desired)
    assert all(wanted[position][0] in known for position in changes.update)


@given(st.dictionaries(IDS, HASHES))
def test_nothing_to_do_twice(points: dict[bytes, bytes]) -> None:
    changes = diff(list(points.items()), points)
    assert changes.empty
    assert changes.unchanged == len(points)


def test_a_payload_hash_knows_values_and_not_the_order_of_keys() -> None:
    one = payload_hash(canonical({"a": 1, "b": {"x": "é", "y": None}}))
    assert one == payload_hash(canonical({"b": {"y": None, "x": "é"}, "a": 1}))
    assert one != payload_hash(canonical({"a": 1.5, "b": {"x": "é", "y": None}}))
    assert one != payload_hash(canonical({"a": 1, "b": {"x": "e", "y": None}}))


def test_a_documents_text_hash_knows_the_order_of_its_chunks() -> None:
    assert document_text_hash(["aa", "bb"]) != document_text_hash(["bb", "aa"])
