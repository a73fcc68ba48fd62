"""What stamps tell of where a row came from: a version's base, or a feed that it applied since."""

from __future__ import annotations

import pytest

from anew.core.feed import NOWHERE, Feed, FeedKind, FeedPartition, PositionMap
from anew.core.merge import Cell
from anew.core.stamp import Origin, OriginKind, Stamp
from anew.node.stores.reads import _source_of
from anew.node.stores.verifyjob import Fed
from anew.testing.builders import ORIGIN, a_feed
from tests.property.core.histories import rows_of

_JOB = Origin(OriginKind.JOB, "clicks", 2)
_RT = a_feed(partitions=2)
_OF_JOB = a_feed(
    partitions=2, kind=FeedKind.GENERATION, topic="flights-clicks-2", incarnation=2, origin=_JOB.encoded.hex()
)


def _start(feed: Feed, offset: int) -> PositionMap:
    return PositionMap({FeedPartition(feed.id, 0): offset, FeedPartition(feed.id, 1): 0})


def _written(partition: int, offset: int) -> Stamp:
    return Stamp(5, ORIGIN, False, 1, partition, offset)


def _put_out(batch: int, sequence: int) -> Stamp:
    return Stamp(5, _JOB.encoded, False, 2, batch, sequence)


def test_an_offset_tells_what_was_folded_in() -> None:
    """A nearline write below the version's start is in its base."""
    start = _start(_RT, 7)
    assert [_source_of(_RT, start, stamp) for stamp in (_written(0, 6), _written(0, 7), _written(1, 0))] == [
        "base",
        "feed",
        "feed",
    ]


@pytest.mark.case("rules:R20")
def test_an_identity_tells_only_that_nothing_was_folded_in() -> None:
    """A job's stamp has no offset: it is the feed's where the version applies the feed from its first record."""
    assert _source_of(_OF_JOB, NOWHERE, _put_out(9, 1)) == "feed"
    assert _source_of(_OF_JOB, _start(_OF_JOB, 0), _put_out(9, 1)) == "feed"
    assert _source_of(_OF_JOB, _start(_OF_JOB, 7), _put_out(9, 1)) == "base or feed"


@pytest.mark.case("rules:R20")
@pytest.mark.parametrize(("folded", "expected"), [(0, [False, True, True, True]), (7, [False, True, False, False])])
def test_what_a_base_has_is_told_from_what_feeds_brought(folded: int, expected: list[bool]) -> None:
    """For a repair: a write by its offset; a job's row counts as the base's where some may be folded in."""
    stamps = (_written(0, 6), _written(0, 7), _put_out(0, 3), _put_out(8, 3))
    rows = rows_of([(b"key %d" % number, Cell(stamp, b"v", 1)) for number, stamp in enumerate(stamps)])
    start = _start(_RT, 7).merged(_start(_OF_JOB, folded))
    fed = [Fed.of(feed, at.partition, start) for feed in (_RT, _OF_JOB) for at in feed.feed_partitions()]
    found = [any(one.among(rows)[row] for one in fed) for row in range(rows.num_rows)]
    assert found == expected
