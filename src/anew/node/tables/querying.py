"""Queries over tables: one consistent set of builds per query, pruned by what the catalog knows, run in a sandbox."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from anew.api.tables.segments import DesiredTable
from anew.core.confighash import value_hash
from anew.core.errors import NotFound, Unreachable
from anew.core.suggest import did_you_mean
from anew.core.tables.segment import ColumnStats, Contents
from anew.node.tables.cache import SegmentCache
from anew.node.tables.hosting import SegmentHost, ServedFile
from anew.segments.tables.groups import row_groups
from anew.sql.pool import QueryPool
from anew.sql.predicates import Predicate
from anew.sql.pruning import may_match
from anew.sql.query import Limits
from anew.sql.sandbox import Question, read_answer
from anew.sql.statements import Query, check_query
from anew.sql.views import SegmentFile, TableView

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Read:
    """What a query reads of one table.

    Attributes:
        segments: How many segments the table has.
        pruned: How many of them cannot hold what is asked for.
        fetched: How many came from the deep store, because other nodes host them.
        row_groups: Of a query that is explained: how many row groups the segments that are read have, and how many of
            those may hold what is asked for.
    """

    table: str
    segments: int
    pruned: int
    fetched: int
    row_groups: tuple[int, int] | None = None

    @property
    def shown(self) -> str:
        """One line for people."""
        read = self.segments - self.pruned
        said = f"{self.table}: {read} of {self.segments} segments read, {self.pruned} pruned, {self.fetched} not here"
        if self.row_groups is None:
            return said
        return f"{said}; {self.row_groups[1]} of their {self.row_groups[0]} row groups may match"


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The answer as an Arrow IPC stream, and what was read for it."""

    stream: bytes
    reads: tuple[Read, ...]


class TableQueries:
    """Answers queries over the tables that a node knows; safe to use from several threads."""

    def __init__(self, host: SegmentHost, pool: QueryPool, cache: SegmentCache, limits: Limits) -> None:
        """Nothing is opened before the first query."""
        self._host, self._pool, self._cache, self._limits = host, pool, cache, limits
        host.tell_builds(cache.keep_only)

    def answer(self, sql: str, may_read: Callable[[str], None] = lambda _table: None) -> QueryAnswer:
        """Run a query, or explain it.

        Args:
            sql: One SELECT, or EXPLAIN of one.
            may_read: Raises for a table that whoever asks may not read.

        Raises:
            InvalidRequest: ``not_a_query``, ``bad_query``, and the limits: ``too_many_rows``, ``query_timeout``,
                ``query_out_of_memory``.
            NotFound: ``unknown_table``.
            Unreachable: ``queries_busy``, ``not_ready``; the deep store does not answer.
            Failed: ``checksum_mismatch``, ``file_missing``, ``query_failed``.
        """
        query = check_query(sql)
        with self._views_of(query, may_read) as (views, reads):
            if query.explain:
                reads = tuple(_with_groups(view, read, query) for view, read in zip(views, reads, strict=True))
            paths = [file.path for view in views for file in view.files]
            columns = [(view.name, [column.model_dump(mode="json") for column in view.columns]) for view in views]
            question = Question(value_hash([paths, columns]), views, sql, self._limits)
            stream = self._pool.execute(question)
        return QueryAnswer(_with_reads(stream, reads) if query.explain else stream, reads)

    def close(self) -> None:
        """End the processes."""
        self._pool.close()

    @contextlib.contextmanager
    def _views_of(
        self, query: Query, may_read: Callable[[str], None]
    ) -> Iterator[tuple[tuple[TableView, ...], tuple[Read, ...]]]:
        """The views of a query's tables; their files stay as long as the block lasts."""
        known = {name.lower(): table for name, table in self._host.tables().items()}
        tables = [_named(known, name) for name in sorted(query.tables)]
        for table in tables:
            may_read(table.name)
        for _ in range(_ATTEMPTS):
            try:
                with contextlib.ExitStack() as held:
                    spelt = _spelt(query, tables)
                    chosen = [self._chosen(table, query.predicates.get(name, ()), held) for name, table in spelt]
                    # What was replaced between the look and the hold is gone: look again.
                    if all(path.exists() for each in chosen for path in each.paths):
                        yield tuple(each.view for each in chosen), tuple(each.read for each in chosen)
                        return
            finally:
                self._cache.trim()
        raise Unreachable("not_ready", "the segments change all the time", found=sorted(query.tables), hint="try again")

    def _chosen(self, table: DesiredTable, predicates: tuple[Predicate, ...], held: contextlib.ExitStack) -> _Chosen:
        """The files that may hold what is asked for, held as read, and fetched where other nodes host them."""
        files, paths = [], []
        served = self._host.files_of(table)
        wanted = {column.name: column.type for column in table.columns}
        pruned = fetched = 0
        for file in served:
            contents = _contents(file)
            # A column that holds nothing but an older default is answered as one that is missing: with the newest.
            present = {name: stats for name, stats in contents.columns.items() if not stats.filled}
            if not may_match(present, contents.rows, predicates, wanted):
                pruned += 1
                continue
            path = file.path
            if path is None:
                path, fetched = self._fetched(file, held), fetched + 1
            else:
                held.enter_context(self._host.reading([path]))
            paths.append(path)
            files.append(_segment_file(file, path, present))
        view = TableView(table.name, table.columns, tuple(files))
        return _Chosen(view, paths, Read(table.name, len(served), pruned, fetched))

    def _fetched(self, file: ServedFile, held: contextlib.ExitStack) -> Path:
        held.enter_context(self._host.reading([self._cache.path_of(file.segment.build)]))
        deep_store = self._host.deep_store
        if deep_store is None:
            raise AssertionError("a table is known together with its deep store")
        return self._cache.fetch(deep_store, file.segment.build)


@dataclass(frozen=True, slots=True)
class _Chosen:
    view: TableView
    paths: list[Path]
    read: Read


def _segment_file(file: ServedFile, path: Path, present: Mapping[str, ColumnStats]) -> SegmentFile:
    as_it_came = file.copy is None or file.copy.original
    return SegmentFile(
        str(path),
        {name: stats.type for name, stats in present.items()},
        segment=file.segment.name,
        nulls=frozenset(name for name, stats in present.items() if stats.nulls),
        foreign=as_it_came and file.segment.build.config_hash is None,
    )


def _named(known: dict[str, DesiredTable], name: str) -> DesiredTable:
    table = known.get(name.lower())
    if table is None:
        raise NotFound(
            "unknown_table",
            f"there is no table {name}",
            found=name,
            expected=", ".join(sorted(known)) or "none is there yet",
            hint=did_you_mean(name.lower(), known),
        )
    return table


def _spelt(query: Query, tables: list[DesiredTable]) -> Iterator[tuple[str, DesiredTable]]:
    """Each table once, under the name that the query spells."""
    seen: set[str] = set()
    for name, table in zip(sorted(query.tables), tables, strict=True):
        if table.uid not in seen:
            seen.add(table.uid)
            yield name, table


def _with_groups(view: TableView, read: Read, query: Query) -> Read:
    """With how many row groups the files of a view have, and how many of those its footers do not rule out."""
    wanted = {column.name: column.type for column in view.columns}
    predicates = {name.lower(): found for name, found in query.predicates.items()}.get(view.name.lower(), ())
    groups = [group for file in view.files for group in row_groups(Path(file.path))]
    matching = sum(may_match(group.columns, group.rows, predicates, wanted) for group in groups)
    return replace(read, row_groups=(len(groups), matching))


def _contents(file: ServedFile) -> Contents:
    return file.segment.build.contents if file.copy is None else file.copy.contents


def _with_reads(stream: bytes, reads: tuple[Read, ...]) -> bytes:
    """An explained plan, headed by what the catalog's statistics spared it."""
    plan = read_answer(stream)
    lines = [read.shown for read in reads]
    explained = pa.table({"plan": [*lines, *plan.column("plan").to_pylist()]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, explained.schema) as writer:
        writer.write_table(explained)
    return sink.getvalue().to_pybytes()
