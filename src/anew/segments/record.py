"""The record of a store: what the catalog holds of it at one revision, as an immutable file in the deep store.

Manifests tell of versions; the record tells the rest: which version is current, live settings, feeds, statuses, the
next version's number, that a store was deleted. A lost catalog is made again from both (design 7.8).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from anew.core.errors import Failed
from anew.core.store import Store

FORMAT_VERSION = 1


class StoreRecord(BaseModel):
    """One revision of a store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT_VERSION
    store: Store

    def to_bytes(self) -> bytes:
        """The record file's content; the same store gives the same bytes."""
        return self.model_dump_json(indent=1).encode()


def parse_record(content: bytes, path: str) -> StoreRecord:
    """The record of a file's content.

    Raises:
        Failed: ``bad_record``.
    """
    try:
        return StoreRecord.model_validate_json(content)
    except ValidationError as error:
        raise Failed(
            "bad_record", f"the record {path} cannot be read", found=str(error).splitlines()[0], expected="format 1"
        ) from error


def worth_a_record(store: Store) -> Store:
    """The store without what changes by itself and is found again: a new record is written when the rest has changed.

    Low-water marks are found in the logs, replicas are placed again, a schedule looks at the clock.
    """
    feeds = tuple(feed.model_copy(update={"low_water": (), "moving": False}) for feed in store.feeds)
    versions = tuple(version.model_copy(update={"assignment": {}}) for version in store.versions)
    changes = {"feeds": feeds, "versions": versions, "revision": 0, "schedule": None, "read_until_ms": {}}
    return store.model_copy(update=changes)
