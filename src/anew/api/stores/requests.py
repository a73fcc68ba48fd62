"""What is asked of stores, and what their drivers say."""

from __future__ import annotations

from pydantic import Field

from anew.api.wire import Request, example
from anew.core.feed import Position
from anew.core.ledger import Ledger
from anew.core.stores.rebuild import Fingerprints
from anew.core.stores.store import ManifestRef

MAX_HOLD_SECONDS = 600


class CreateStore(Request):
    """Make a store. Schemas are Avro texts; the same ``request_id`` with the same body is the same store."""

    model_config = example(
        name="flights",
        key_schema='"string"',
        value_schema='{"type": "record", "name": "Flight", "fields": [{"name": "delay", "type": "int"}]}',
        settings={"partitions": 8, "hybrid": True},
        request_id="create-flights-1",
    )

    name: str
    key_schema: str
    value_schema: str
    settings: dict[str, str | int | bool | None] = Field(default_factory=dict)
    partitioner_source: str | None = None
    request_id: str | None = None


class UpdateStore(Request):
    """Change settings, or add a value schema; with a partitioner of one's own goes the source of its module."""

    model_config = example(settings={"compression": "zstd", "owner": "data-platform"})

    settings: dict[str, str | int | bool | None] = Field(default_factory=dict)
    partitioner_source: str | None = None
    value_schema: str | None = None


class Swap(Request):
    """Make a version current; no fabrics means all of the store's."""

    model_config = example(version=8, fabrics=["dc-0"], dry_run=True)

    version: int
    fabrics: tuple[str, ...] = ()
    dry_run: bool = False
    force: bool = False


class RollBack(Request):
    """Go back to a version; None means the newest backup."""

    model_config = example(to=7, dry_run=False)

    to: int | None = None
    fabrics: tuple[str, ...] = ()
    dry_run: bool = False
    force: bool = False


class HoldVersion(Request):
    """Keep a version for a long read: for so long from now, at most `MAX_HOLD_SECONDS` at a time; renew it to go on.

    A read that says which hold is its own, by an id that no other one has, lets go of it with 0 seconds.
    """

    model_config = example(version=7, seconds=120)

    version: int
    seconds: int = Field(ge=0, le=MAX_HOLD_SECONDS)
    hold: str | None = Field(default=None, max_length=100)


class Seal(Request):
    """The base is complete: commit its manifest. Repeating the same is the same."""

    epoch: int
    manifest: ManifestRef
    ledger: Ledger
    fingerprint: Fingerprints
    records_per_s: float
    start: Position | None = None
