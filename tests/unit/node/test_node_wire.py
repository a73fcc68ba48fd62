"""Batches, answers and pages on the wire."""

from __future__ import annotations

import pytest

from anew.api.stores.node_wire import (
    MAX_BATCH_KEYS,
    BatchAnswer,
    KeyResult,
    KeyState,
    ScanItem,
    ScanPage,
    decode_answer,
    decode_keys,
    decode_page,
    encode_answer,
    encode_keys,
    encode_page,
)
from anew.core.errors import InvalidRequest


def test_everything_comes_back_as_it_was_sent() -> None:
    """Keys, answers and pages decode to what was encoded."""
    keys = [b"", b"a", b"\x00\xff"]
    assert decode_keys(encode_keys(keys)) == keys
    answer = BatchAnswer(
        3, 17, (KeyResult(KeyState.FOUND, 2, 5, b"v"), KeyResult(KeyState.ABSENT), KeyResult(KeyState.ELSEWHERE))
    )
    assert decode_answer(encode_answer(answer)) == answer
    for after in (None, b"", b"k"):
        page = ScanPage(3, (ScanItem(b"k", 1, 9, b"v"),), after)
        assert decode_page(encode_page(page)) == page


def test_a_batch_is_bounded_and_well_formed() -> None:
    """A body that is no batch, and a batch with too many keys, are refused."""
    with pytest.raises(InvalidRequest, match="no batch of keys"):
        decode_keys(b"\x05\x00garbage")
    with pytest.raises(InvalidRequest, match="too many keys"):
        decode_keys(encode_keys([b"k"] * (MAX_BATCH_KEYS + 1)))
