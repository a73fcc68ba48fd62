"""A query process without its check of statements: what is left is the guard."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

import duckdb

from anew.sql.guard import forbid_writing
from anew.sql.query import QueryEngine
from anew.sql.views import TableView


def run_unchecked(connection: Connection, view: TableView, statements: list[str]) -> None:
    """Run statements as they are behind the guard, and try to write in other ways; tell what each came to."""
    told = [str(forbid_writing())]
    engine = QueryEngine([view])
    for statement in statements:
        try:
            engine._connection.execute(statement)
            told.append("done")
        except duckdb.Error as error:
            told.append(str(error))
    path = Path(view.files[0].path)
    for attempt in (lambda: path.open("wb"), path.unlink, lambda: path.rename(path.with_name("new"))):
        try:
            attempt()
            told.append("done")
        except OSError as error:
            told.append(str(error))
    connection.send(told)
