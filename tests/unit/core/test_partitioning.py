"""Partitioners of one's own: loading, checking every answer, and what makes two configurations place keys alike."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from anew.core.errors import InvalidRequest
from anew.core.partition import sub_partition_of, sub_partitions_of
from anew.core.partitioning import check_partitioner, partitioner_identity, partitioner_of
from anew.core.stores.copartition import MOST_FILES_OF_A_TASK, Groups, groups_of, why_not_copartitioned
from anew.core.stores.store import Frozen
from anew.testing.builders import a_config

_BY_LENGTH = """
import pyarrow as pa
import pyarrow.compute as pc

class ByLength:
    def __init__(self, partitions, plus=0):
        self.partitions, self.plus = partitions, plus

    def __call__(self, keys):
        lengths = pc.add(pc.binary_length(keys), self.plus).to_pylist()
        return pa.array([length % self.partitions for length in lengths], pa.int32())
"""
_KEYS = pa.array([b"a", b"bb", b"ccc", b"dddd"], pa.binary())


def _config(answer: str | None = None, **settings: object) -> Frozen:
    """A configuration whose partitioner answers with an expression over ``keys`` and ``n``."""
    source = _BY_LENGTH
    if answer is not None:
        source = (
            "import itertools\nimport pyarrow as pa\ncounter = itertools.count()\nclass ByLength:\n"
            "    def __init__(self, n): self.n = n\n"
            f"    def __call__(self, keys):\n        n = self.n\n        return {answer}\n"
        )
    settings = {"partitioner": "mine:ByLength", "partitions": 3, **settings}
    return a_config(**settings).frozen.model_copy(update={"partitioner_source": source})


def test_a_partitioner_is_made_from_its_source_and_parameters() -> None:
    """Its class gets the partition count and the parameters; one key is placed as among many."""
    partitioner = partitioner_of(_config(partitioner_params=json.dumps({"plus": 1})))
    assert partitioner.of_all(_KEYS).tolist() == [2, 0, 1, 2]
    assert [partitioner.of(key) for key in (b"a", b"bb", b"ccc")] == [2, 0, 1]
    check_partitioner(partitioner, _KEYS)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("pa.array([0, 1, 2, 3], pa.int32())", "3"),
        ("pa.array([0, 1, 2, -1], pa.int32())", "-1"),
        ("pa.array([0, 1, 2, None], pa.int32())", "None"),
        ("pa.array([0, 1, 2, 0], pa.int64())", "int64"),
        ("pa.array([0, 1, 2], pa.int32())", "int32 × 3"),
        ("[0, 1, 2, 0]", "list"),
        ("1 // 0", "ZeroDivisionError"),
    ],
)
def test_every_answer_is_checked_and_the_key_is_named(answer: str, found: str) -> None:
    """A number out of range, a null, another type or length, or an error: refused, naming a key in hex."""
    with pytest.raises(InvalidRequest) as caught:
        partitioner_of(_config(answer)).of_all(_KEYS)
    assert caught.value.code == "bad_partitioner"
    assert found in str(caught.value.found)
    named = b"dddd".hex() if found in ("3", "-1", "None") else b"a".hex()
    assert named in caught.value.message


def test_other_results_on_a_second_call_are_found_before_a_job() -> None:
    """A partitioner that counts its calls is found out, and the key is named."""
    with pytest.raises(InvalidRequest, match="second call") as caught:
        check_partitioner(partitioner_of(_config("pa.array([next(counter) % n for _ in keys], pa.int32())")), _KEYS)
    assert b"a".hex() in caught.value.message


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("", "no source"),
        ("import no_such_module_anywhere", "ModuleNotFoundError"),
        ("class Other: pass", "without ByLength"),
        ("class ByLength: pass", "takes no arguments"),
        ("class ByLength:\n    def __init__(self, n): pass", "cannot be called"),
        ("def broken(:", "SyntaxError"),
        ("#" * 70_000, "70000 bytes"),
    ],
)
def test_what_cannot_be_loaded_is_refused(source: str, found: str) -> None:
    """No source, one that does not run, lacks the class, or whose class does not fit: refused with the reason."""
    with pytest.raises(InvalidRequest) as caught:
        partitioner_of(_config().model_copy(update={"partitioner_source": source}))
    assert caught.value.code == "bad_partitioner"
    assert found in str(caught.value.found)


def test_source_and_parameters_are_the_identity() -> None:
    """Another text or another parameter is another partitioner; the order of parameters is not."""
    config = _config(partitioner_params='{"plus": 1}')
    assert partitioner_identity(config) == partitioner_identity(_config(partitioner_params='{ "plus":1 }'))
    assert partitioner_identity(config) != partitioner_identity(_config())
    assert config.hash != config.model_copy(update={"partitioner_source": _BY_LENGTH + "\n"}).hash


def test_sub_partitions_are_independent_of_partitions() -> None:
    """Where partitions and sub-partitions share a factor, no sub-partition of a partition stays empty."""
    keys = pa.array([b"key %d" % n for n in range(4_000)], pa.binary())
    partitions = partitioner_of(a_config(partitions=4).frozen).of_all(keys)
    subs = sub_partitions_of(keys, 4)
    assert {(int(p), int(s)) for p, s in zip(partitions, subs, strict=True)} == {
        (p, s) for p in range(4) for s in range(4)
    }
    assert [sub_partition_of(b"key %d" % n, 4) for n in range(50)] == subs[:50].tolist()
    assert sub_partitions_of(keys, 1).max() == 0


@pytest.mark.parametrize(
    ("now", "wanted", "why"),
    [
        ({"partitions": 4}, {"partitions": 4, "compression": "zstd"}, None),
        ({"partitions": 4}, {"partitions": 8}, None),
        ({"partitions": 8}, {"partitions": 2, "amplification_factor": 2}, None),
        ({"partitions": 4}, {"partitions": 6}, "divides"),
        ({"amplification_factor": 2}, {"amplification_factor": 3}, "amplification"),
        ({"partitions": 1}, {"partitions": MOST_FILES_OF_A_TASK + 1}, "files open"),
    ],
)
def test_when_the_base_can_stay(now: dict[str, object], wanted: dict[str, object], why: str | None) -> None:
    """Counts that divide one another leave the files as they are; anything else is shuffled, and the reason is said."""
    found = why_not_copartitioned(a_config(**now).frozen, a_config(**wanted).frozen)
    assert found is None if why is None else why in str(found)


def test_another_partitioner_is_shuffled() -> None:
    """A change of the partitioner, or of the count under one of one's own, moves keys in ways that nobody knows."""
    own = _config()
    assert why_not_copartitioned(own, own.model_copy(update={"compression": "zstd"})) is None
    assert "partitioner changes" in str(why_not_copartitioned(a_config(partitions=3).frozen, own))
    assert "nothing is known" in str(why_not_copartitioned(own, own.model_copy(update={"partitions": 6})))


def test_groups_exchange_no_key() -> None:
    """Source and target sub-partitions of a key are always in one group."""
    keys = pa.array([b"key %d" % n for n in range(500)], pa.binary())
    for source, target in (((4, 2), (8, 1)), ((6, 1), (2, 3)), ((3, 2), (3, 2))):
        configs = [a_config(partitions=p, amplification_factor=a).frozen for p, a in (source, target)]
        groups = groups_of(*configs)
        assert groups == Groups(min(source[0], target[0]), min(source[1], target[1]))
        found = [
            [
                groups.of(int(p), int(s))
                for p, s in zip(
                    partitioner_of(c).of_all(keys), sub_partitions_of(keys, c.amplification_factor), strict=True
                )
            ]
            for c in configs
        ]
        assert found[0] == found[1]
        assert set(found[0]) == set(range(groups.count))
