"""The checkpoint of a generation: what Spark planned for its batches, read and compared, never written by us."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anew.core.errors import Failed, Refused
from anew.core.jobs.batch import BatchRecord, planned_digest
from anew.core.jobs.inputs import Offsets

_FORMAT = "v1"
_NO_OFFSETS = "-"
_INPUT = "input"


@dataclass(frozen=True, slots=True)
class Planned:
    """What Spark planned for a batch.

    Attributes:
        end: Input → partition → next offset to read behind it.
        digest: Of the file that says so.
    """

    end: dict[str, Offsets]
    watermark_ms: int | None
    digest: str


def planned(checkpoint: Path, batch: int) -> Planned:
    """What Spark planned for a batch.

    Raises:
        Failed: ``checkpoint_unreadable``.
    """
    path = checkpoint / "offsets" / str(batch)
    try:
        content = path.read_bytes()
        version, metadata, *sources = content.decode().splitlines()
        said = json.loads(metadata)
        end = {} if version != _FORMAT else dict(map(_source, (line for line in sources if line != _NO_OFFSETS)))
        watermark_ms = int(said.get("batchWatermarkMs", 0))
    except (OSError, ValueError, KeyError) as error:
        raise Failed(
            "checkpoint_unreadable",
            f"what was planned for batch {batch} cannot be read",
            found=f"{path}: {error}",
            expected=f"a file of Spark's, version {_FORMAT}",
            hint="a checkpoint is Spark's alone: go back to an earlier batch in a new generation",
        ) from error
    return Planned(end, watermark_ms or None, planned_digest(content))


def _source(line: str) -> tuple[str, Offsets]:
    stated: dict[str, Any] = json.loads(line)
    name = str(stated.pop(_INPUT))
    return name, {int(partition): int(offset) for partition, offset in stated.items()}


def newest_batch(checkpoint: Path) -> int | None:
    """The last batch that Spark planned; None for a checkpoint that is not there yet."""
    folder = checkpoint / "offsets"
    numbers = [int(path.name) for path in folder.glob("*") if path.name.isdigit()] if folder.is_dir() else []
    return max(numbers, default=None)


def is_committed(checkpoint: Path, batch: int) -> bool:
    """Whether Spark has noted that a batch is done."""
    return (checkpoint / "commits" / str(batch)).exists()


def check_checkpoint(checkpoint: Path, records: Sequence[BatchRecord]) -> None:
    """Raise unless a checkpoint is the one that the records of batches were made with.

    Args:
        checkpoint: Its folder.
        records: The last records of the generation, in their order; as many as there are, or as Spark keeps.

    Raises:
        Refused: ``checkpoint_edited``, ``checkpoint_lost``.
    """
    newest = newest_batch(checkpoint)
    last = records[-1].batch if records else -1
    if newest is None and not records:
        return
    if newest is None or not last <= newest <= last + 1:
        raise Refused(
            "checkpoint_lost" if newest is None or newest < last else "checkpoint_edited",
            "the checkpoint does not go with the batches that were recorded",
            found="no batch" if newest is None else f"batch {newest} was planned last",
            expected=f"batch {last} or {last + 1}",
            hint="begin a new generation where this one stood: anew job rewind",
        )
    for record in records:
        path = checkpoint / "offsets" / str(record.batch)
        if path.exists() and planned_digest(path.read_bytes()) != record.planned:
            raise Refused(
                "checkpoint_edited",
                f"the checkpoint says otherwise of batch {record.batch} than was recorded",
                found=str(path),
                expected=f"a file with the SHA-256 {record.planned}",
                hint="positions are never moved there: anew job rewind begins a new generation at any position",
            )
