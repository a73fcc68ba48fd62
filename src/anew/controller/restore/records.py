"""Records in the deep stores, so that a lost catalog can be made again. Level-triggered: each round looks.

A record is written after the commit that it tells of. So a crash of the controller and the loss of the catalog at one
moment can take what was changed within the last round, and nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from anew.controller.engine.apart import Apart
from anew.controller.engine.context import Context
from anew.controller.restore.documents import DocumentMemory
from anew.controller.restore.tablerecords import TableMemory
from anew.core.errors import AnewError, Refused
from anew.core.stores.store import Store
from anew.segments.layout import record_path, records_path
from anew.segments.record import StoreRecord, worth_a_record

_LOG = structlog.get_logger("anew.controller")
_KEPT = 3
"""How many records of a store stay in each fabric: the newest, and some to fall back to."""


@dataclass(slots=True)
class Memory:
    """Writes what has changed; keeps nothing that cannot be made again.

    Attributes:
        context: The controller's collaborators.
    """

    context: Context
    _seen: int = -1
    _written: dict[tuple[str, str], Store] = field(default_factory=dict)
    _tables: TableMemory = field(init=False)
    _documents: DocumentMemory = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing remembered."""
        self._tables = TableMemory(self.context)
        self._documents = DocumentMemory(self.context)

    def remember(self, apart: Apart) -> None:
        """Write a record of what has changed; what cannot be written is tried again in the next round."""
        catalog = self.context.catalog
        revision = catalog.revision()
        if revision == self._seen:
            return
        due = ((store, fabric) for store in (*catalog.stores(), *catalog.deleted_stores()) for fabric in store.fabrics)
        # Where one cannot be written the fabric's others are not tried: each would wait for a deep store that is away.
        away, unforeseen = set[str](), len(apart.unforeseen)
        for store, fabric in due:
            if fabric in away:
                continue
            with apart.step(f"the record of {store.name} in {fabric}"):
                try:
                    self._remember(store, fabric)
                except AnewError:
                    away.add(fabric)
                    raise
        complete = self._documents.remember(away, apart)
        complete = self._tables.remember(away, apart) and complete
        if complete and not away and len(apart.unforeseen) == unforeseen:
            self._seen = revision

    def _remember(self, store: Store, fabric: str) -> None:
        before = self._written.get((store.uid, fabric))
        if before is not None and before.revision == store.revision:
            return
        if before is not None and worth_a_record(before) == worth_a_record(store):
            self._written[store.uid, fabric] = store
            return
        deep_store = self.context.fabrics[fabric].deep_store
        try:
            deep_store.put(record_path(store.uid, store.revision), StoreRecord(store=store).to_bytes())
            for older in list(deep_store.list(records_path(store.uid)))[:-_KEPT]:
                deep_store.delete(older.path)
        except Refused as error:
            # Another release wrote it in other words; the next change gets a name of its own.
            _LOG.warning("record_taken", store=store.name, fabric=fabric, **error.to_json())
        self._written[store.uid, fabric] = store
