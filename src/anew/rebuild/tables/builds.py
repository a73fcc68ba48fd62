"""What builds which kind of a table's rebuild."""

from __future__ import annotations

from anew.core.tables.plan import TableRebuildKind
from anew.rebuild.tables.driving import Build
from anew.rebuild.tables.load import load
from anew.rebuild.tables.refresh import refresh

BUILDS: dict[TableRebuildKind, Build] = {TableRebuildKind.REFRESH: refresh, TableRebuildKind.TABLE_LOAD: load}
