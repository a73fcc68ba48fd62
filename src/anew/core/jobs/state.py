"""How Spark keeps what a function remembers between batches: in one way alone, so that it can be copied and read back.

RocksDB with its changes in the checkpoint, in format 2: files of a batch have names of their own, so that what a batch
that is gone left behind is never taken for another one's. With format 1 a roll-back loaded such a file, and counted
343 in the place of 957 without an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anew.core.errors import InvalidRequest
from anew.core.jobs.plan import DEPLOY, Mode

_STORES = "spark.sql.streaming.stateStore"
STATE_SETTINGS: Mapping[str, str] = {
    f"{_STORES}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STORES}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STORES}.checkpointFormatVersion": "2",
    # Of several inputs the one that is behind decides what is late.
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
}
"""What every query of a job is started with, whatever its session says."""

STATE_PARTITIONS = "spark.sql.shuffle.partitions"
"""In so many parts the state lies from its first batch on. Spark keeps the number in the checkpoint."""
DEFAULT_STATE_PARTITIONS = 8
"""Each part costs a task and a commit in every batch: Spark's own 200 are for frames that are read once."""


def check_state_settings(conf: Mapping[str, str]) -> None:
    """Raise where settings of a generation would have its state kept in another way.

    Raises:
        InvalidRequest: ``bad_conf``.
    """
    for name, wanted in STATE_SETTINGS.items():
        if conf.get(name, wanted) != wanted:
            raise InvalidRequest(
                "bad_conf",
                "the state of a job is kept in one way, which can be copied and read back",
                found=f"{name}={conf[name]}",
                expected=f"{name}={wanted}",
                hint="leave it out of --conf",
            )


def check_carried(job: str, mode: Mode, *, before: Sequence[str], after: Sequence[str]) -> None:
    """Raise where a generation that may keep no state is known to keep some.

    Args:
        job: Its name.
        mode: The generation's; a deployment goes on behind what the one before had read, whatever its own code keeps.
        before: The operators of the live generation that keep state.
        after: Those of the generation.

    Raises:
        InvalidRequest: ``state_not_carried``.
    """
    operators = tuple(after) or (tuple(before) if mode == DEPLOY else ())
    if operators:
        raise not_carried(job, operators)


def no_skipping(operators: Sequence[str]) -> InvalidRequest:
    """What is said where a function that keeps state is to leave out records on which it fails."""
    return InvalidRequest(
        "state_skips_nothing",
        "a function that keeps state leaves out no record: its batch is one frame, and the state would be another",
        found=f"--on-bad-record skip, and {', '.join(operators)}",
        expected="--on-bad-record stop",
        hint="let the function itself filter what it cannot process",
    )


def not_carried(job: str, operators: Sequence[str]) -> InvalidRequest:
    """What is said where a generation would go on in what another one wrote, and remember nothing of it."""
    return InvalidRequest(
        "state_not_carried",
        f"{job} keeps state, which neither a deployment nor a rewind in place into a store carries on",
        found=", ".join(operators),
        expected="an output of its own, or code without state, now and before",
        hint=f"anew job rewind {job} FUNCTION --from oldest reads all history beside it, and makes the state of it",
    )
