"""The answers of brokers: no bytes break who reads them."""

from __future__ import annotations

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from anew.brokers.asking import parse_answer

_HEADER = struct.pack(">ibih", 1, 0, 0, 0)


@given(st.binary(max_size=200))
@example(_HEADER)
def test_any_bytes_are_an_answer_or_none(rest: bytes) -> None:
    """What is no answer is a ValueError or a struct.error, which ``ask`` takes for silence; nothing else comes out."""
    for answer in (rest, _HEADER + rest):
        try:
            view = parse_answer(answer)
        except (ValueError, struct.error):
            continue
        assert view is None or all(-(2**31) <= broker < 2**31 for broker in view.brokers)
