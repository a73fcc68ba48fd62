"""Two sorted lists of keys and hashes side by side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.client.differences import MOST_NAMED, Differences, Entry, differing
from anew.client.verdict import ReplicaVerdict, Verification, verdict_error
from anew.codec.avro import encode_datum, parse_schema
from anew.core.errors import Failed, Unreachable
from anew.core.feed import NOWHERE
from anew.core.fingerprint import Fingerprint
from anew.core.merge import Cell
from anew.core.stamp import Stamp
from tests.property.core.histories import MODEST, rows_of

_SIDES = st.dictionaries(st.binary(max_size=2), st.integers(0, 2), max_size=8)


@MODEST
@given(_SIDES, _SIDES)
def test_each_key_that_differs_comes_once_in_order(expected: dict[bytes, int], held: dict[bytes, int]) -> None:
    """Keys on one side alone are missing or left over, those with another hash differ, all others are passed over."""
    found = list(differing(iter(sorted(expected.items())), iter(sorted(held.items()))))
    wanted = []
    for key in sorted(expected.keys() | held.keys()):
        if key not in held:
            wanted.append((key, "missing"))
        elif key not in expected:
            wanted.append((key, "left over"))
        elif expected[key] != held[key]:
            wanted.append((key, "different"))
    assert found == wanted


def test_some_are_named_and_all_are_counted() -> None:
    """The first twenty of all replicas are named in plain words; a key that is none of the schema's is shown in hex."""
    schema = parse_schema('"string"')
    keys = sorted(encode_datum(schema, f"k{number:02}") for number in range(30))
    expected = rows_of([(key, Cell(Stamp(1), b"v", 1)) for key in keys])
    differences = Differences('"string"')
    differences.add("n1", (1, 0), iter([expected]), iter(list[Entry]()))
    differences.add("n2", (1, 0), iter([expected[:0]]), iter([(b"\xff", 1)]))
    assert differences.count == 31
    assert [d.key for d in differences.named] == [f"k{number:02}" for number in range(MOST_NAMED)]
    assert {(d.node, d.partition, d.sub_partition, d.kind) for d in differences.named} == {("n1", 1, 0, "missing")}
    strange = Differences('"string"')
    strange.add("n2", (0, 2), iter([expected[:0]]), iter([(b"\xff", 1)]))
    assert [(d.key, d.sub_partition, d.kind) for d in strange.named] == [("ff", 2, "left over")]


_SOME = Fingerprint(2, 1, (3, *[0] * 255), (2**64 - 1, *[0] * 255))
_OTHER = Fingerprint(2, 1, (3, *[0] * 255), (5, *[0] * 255))


@pytest.mark.parametrize(
    ("verdicts", "kind", "code"),
    [
        ("ee", type(None), None),
        ("eu", Unreachable, "replicas_unverified"),
        ("ed", Failed, "replicas_differ"),
        ("ud", Failed, "replicas_differ"),
        ("", type(None), None),
    ],
)
def test_what_is_wrong_decides_the_exit(verdicts: str, kind: type, code: str | None) -> None:
    """A difference is a failure, also where other replicas are unknown; unknown ones alone are unreachable."""
    made = {
        "e": ReplicaVerdict.of("n1", (0, 0), _SOME, _SOME),
        "d": ReplicaVerdict.of("n2", (0, 0), _OTHER, _SOME),
        "u": ReplicaVerdict.unverified("n3", (0, 0), "it is away"),
    }
    chosen = tuple(made[letter] for letter in verdicts)
    error = verdict_error("flights", chosen, 3)
    assert type(error) is kind
    assert getattr(error, "code", None) == code
    shown = Verification(
        store="flights",
        version=7,
        fabric="dc-0",
        position=NOWHERE,
        equal=error is None,
        replicas=chosen,
        expected=(),
        differences=(),
        difference_count=0,
        error=error,
    ).to_json()
    assert (shown["error"] or {}).get("code") == code
    equal = {"e": True, "d": False, "u": None}
    assert [replica["equal"] for replica in shown["replicas"]] == [equal[letter] for letter in verdicts]
