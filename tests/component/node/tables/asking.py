"""Queries over a node's segments: real processes that run them, and what they answer."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from anew.api.gate import Gate
from anew.core.errors import AnewError, error_from_json
from anew.node.exchange import Answer, Request
from anew.node.tables.cache import SegmentCache
from anew.node.tables.queryface import QUERY_PATH, QueryFace
from anew.node.tables.querying import Read, TableQueries
from anew.sql.pool import QueryPool
from anew.sql.query import Limits
from anew.sql.sandbox import Question, read_answer
from tests.component.node.tables.harness import LIMITS, Rig

Rows = list[tuple[Any, ...]]


class Between(QueryPool):
    """Query processes that let something happen after a query has chosen its files, and before it reads them."""

    def __init__(self) -> None:
        """Nothing happens until it is said what."""
        super().__init__(processes=1)
        self.then: list[Any] = []

    def execute(self, question: Question) -> bytes:
        """See `QueryPool.execute`."""
        while self.then:
            self.then.pop()()
        return super().execute(question)


@contextmanager
def query_processes() -> Iterator[Between]:
    """Processes for all tests of a file."""
    pool = Between()
    try:
        yield pool
    finally:
        pool.close()


@dataclass
class Asker:
    """Asks a node about the tables that its host knows."""

    node: Rig
    pool: Between
    queries: TableQueries
    face: QueryFace

    @property
    def cached(self) -> set[str]:
        """The builds in the node's cache."""
        return {path.stem for path in (self.node.folder / "cache").iterdir()}

    def rows(self, sql: str) -> Rows:
        """The rows of an answer."""
        return as_rows(read_answer(self.queries.answer(sql).stream))

    def reads(self, sql: str) -> list[str]:
        """What a query read, one line per table."""
        return [read.shown for read in self.read(sql)]

    def read(self, sql: str) -> tuple[Read, ...]:
        """What a query read."""
        return self.queries.answer(sql).reads

    def post(self, body: bytes, method: str = "POST", **headers: str | None) -> Answer:
        """The answer over HTTP's face, to a request with these headers."""
        request = Request(method, QUERY_PATH, {}, headers.get, body)
        return asyncio.run(self.face.answer(request))

    def ask(self, sql: str, accept: str | None = None, authorization: str | None = None) -> Answer:
        """The answer to SQL over HTTP's face."""
        return self.post(json.dumps({"sql": sql}).encode(), accept=accept, authorization=authorization)

    def limited(self, **limits: Any) -> Asker:
        """The same with other limits."""
        return asker(self.node, self.pool, limits=dataclasses.replace(LIMITS, **limits))


def asker(node: Rig, pool: Between, cache_bytes: int = 1_000_000, limits: Limits = LIMITS) -> Asker:
    """One who asks a node; its cache begins empty."""
    cache = SegmentCache(node.folder / "cache", cache_bytes, node.host.is_read)
    queries = TableQueries(node.host, pool, cache, limits)
    return Asker(node, pool, queries, QueryFace(queries, Gate(None, lambda: 0)))


def as_rows(table: pa.Table) -> Rows:
    """The rows of a table."""
    return [tuple(row.values()) for row in table.to_pylist()]


def refusal(answer: Answer) -> AnewError:
    """The error that an answer carries."""
    assert answer.status >= 400, answer
    return error_from_json(answer.status, json.loads(answer.body)["error"])


def everything(folder: Path) -> dict[Path, tuple[int, str]]:
    """All files below a folder: when each was changed last, and the checksum of its bytes."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files}
