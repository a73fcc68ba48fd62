"""Where keys, ranges and replicas go."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anew.core.assignment import assign
from anew.core.feed import FeedPartition, PositionMap
from anew.core.partition import XxHash64Partitioner, feed_partitions_of
from anew.core.stores.planning import split_ranges
from tests.property.core.histories import MODEST

_FEED = "dc-0/s_rt#1"


@MODEST
@given(st.integers(1, 200), st.lists(st.binary(max_size=16), max_size=30))
def test_partitions_are_in_range_and_alike_one_by_one_or_together(count: int, keys: list[bytes]) -> None:
    """Each key's partition is in [0, count), and many keys get what each gets on its own."""
    partitioner = XxHash64Partitioner(count)
    each = [partitioner.of(key) for key in keys]
    assert partitioner.of_all(pa.array(keys, pa.binary())).tolist() == each
    assert all(0 <= partition < count for partition in each)


@MODEST
@given(st.integers(1, 24), st.integers(1, 24))
def test_a_partition_reads_exactly_the_feed_partitions_that_can_hold_its_keys(count: int, feed_count: int) -> None:
    """Over all remainders that a hash can leave, the feed partitions of a partition are those that occur with it."""
    occurring = {(h % count, h % feed_count) for h in range(count * feed_count)}
    for partition in range(count):
        wanted = {feed for p, feed in occurring if p == partition}
        assert set(feed_partitions_of(partition, count, feed_count)) == wanted


@MODEST
@given(st.integers(1, 24), st.integers(1, 24), st.binary(max_size=12))
def test_each_key_s_feed_partition_is_read_by_its_partition(count: int, feed_count: int, key: bytes) -> None:
    """Negative remainders included, a key's RT partition is among those that its version partition reads."""
    partition, feed = XxHash64Partitioner(count).of(key), XxHash64Partitioner(feed_count).of(key)
    assert feed in feed_partitions_of(partition, count, feed_count)


@pytest.mark.case("stores:B2", "stores:B7")
@MODEST
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=6), st.integers(1, 120))
def test_splits_are_disjoint_contiguous_and_complete(spans: list[tuple[int, int]], most: int) -> None:
    """Per feed partition the ranges follow one another from start to end, none empty, none larger than allowed."""
    start = PositionMap({FeedPartition(_FEED, n): begin for n, (begin, _) in enumerate(spans)})
    end = PositionMap({FeedPartition(_FEED, n): begin + length for n, (begin, length) in enumerate(spans)})
    ranges = split_ranges(start, end, most)
    assert all(1 <= split.end - split.begin <= most for split in ranges)
    for at in end:
        mine = [split for split in ranges if split.at == at]
        covered = [start[at], *(split.end for split in mine)]
        assert [split.begin for split in mine] == covered[:-1]
        assert covered[-1] == end[at]
    assert len({split.id for split in ranges}) == len(ranges)


def _splits(records: list[int], most: int) -> list[int]:
    start = PositionMap({FeedPartition(_FEED, n): 40 for n in range(len(records))})
    end = PositionMap({FeedPartition(_FEED, n): 40 + count for n, count in enumerate(records)})
    ranges = split_ranges(start, end, most)
    return [sum(split.at.partition == n for split in ranges) for n in range(len(records))]


@pytest.mark.case("stores:B1")
def test_splits_of_the_guide_s_example() -> None:
    """Partitions of 300, 356 and 350 records make 3 splits by default, and 3 + 4 + 4 of at most 100 records."""
    assert _splits([300, 356, 350], 5_000_000) == [1, 1, 1]
    assert _splits([300, 356, 350], 100) == [3, 4, 4]


@pytest.mark.case("stores:B3")
def test_an_empty_partition_makes_no_split() -> None:
    """Partitions without records are left out without an error, all of them as well."""
    assert _splits([0, 5, 0], 100) == [0, 1, 0]
    assert _splits([0, 0], 100) == [0, 0]


_NODES = [f"node-{n}" for n in range(9)]
clusters = st.lists(st.sampled_from(_NODES), min_size=1, unique=True)


def _loads(assigned: dict[int, tuple[str, ...]], nodes: list[str]) -> list[int]:
    return [sum(node in holders for holders in assigned.values()) for node in nodes]


@MODEST
@given(st.integers(1, 30), st.integers(1, 4), clusters)
def test_a_fresh_assignment_is_balanced(partitions: int, replicas: int, nodes: list[str]) -> None:
    """Every partition gets its replicas on different nodes, and no node more than one replica above another."""
    assigned = assign(partitions, replicas, nodes, {})
    wanted = min(replicas, len(nodes))
    assert sorted(assigned) == list(range(partitions))
    assert all(len(holders) == len(set(holders)) == wanted for holders in assigned.values())
    loads = _loads(assigned, nodes)
    assert sum(loads) == partitions * wanted
    assert max(loads) - min(loads) <= 1


@MODEST
@given(st.integers(1, 30), st.integers(1, 4), clusters, clusters)
def test_what_is_held_stays_within_a_node_s_share(
    partitions: int, replicas: int, before: list[str], after: list[str]
) -> None:
    """From nodes to nodes: nobody gets a replica twice, and what was held stays unless its node is full or gone."""
    held = assign(partitions, replicas, before, {})
    assigned = assign(partitions, replicas, after, held)
    wanted = min(replicas, len(after))
    assert all(len(holders) == len(set(holders)) == wanted for holders in assigned.values())
    share = -(-partitions * wanted // len(after))
    for node in after:
        had = [p for p, holders in held.items() if node in holders]
        kept = [p for p in had if node in assigned[p]]
        if wanted == min(replicas, len(before)):
            assert len(kept) == min(len(had), share)


@MODEST
@given(st.integers(1, 30), st.integers(1, 4), clusters)
def test_nothing_moves_when_nothing_changed(partitions: int, replicas: int, nodes: list[str]) -> None:
    """Assigning again what is held on the same nodes changes nothing, whatever the order of their names."""
    held = assign(partitions, replicas, nodes, {})
    assert assign(partitions, replicas, sorted(nodes, reverse=True), held) == held


@MODEST
@given(st.integers(1, 30), st.integers(1, 3), st.lists(st.sampled_from(_NODES), min_size=2, unique=True))
def test_of_a_lost_node_only_its_replicas_move(partitions: int, replicas: int, nodes: list[str]) -> None:
    """When a node goes, every replica on another node stays where it is."""
    held = assign(partitions, replicas, nodes, {})
    lost, *others = nodes
    assigned = assign(partitions, replicas, others, held)
    for partition, holders in held.items():
        assert set(holders) - {lost} <= set(assigned[partition])


def test_without_a_node_nobody_holds_anything() -> None:
    """No node is no holder, not an error."""
    assert assign(2, 3, [], {0: ("gone",)}) == {0: (), 1: ()}
