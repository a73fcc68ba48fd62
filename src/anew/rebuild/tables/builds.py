"""What builds which kind of a table's rebuild."""

from __future__ import annotations

from anew.core.tables.plan import TableRebuildKind
from anew.core.tables.rebuild import TableRebuild
from anew.core.tables.table import Table
from anew.rebuild.driving import Job
from anew.rebuild.tables.driving import Build, TableRun, on_spark
from anew.rebuild.tables.load import load
from anew.rebuild.tables.refresh import refresh

BUILDS: dict[TableRebuildKind, Build] = {TableRebuildKind.REFRESH: refresh, TableRebuildKind.TABLE_LOAD: load}


def refreshing(run: TableRun) -> Job[TableRebuild, Table]:
    """The job of a refresh or a load."""
    return on_spark(run, lambda rebuild: BUILDS[rebuild.kind])
