"""The HTTP face of queries, ``POST /v1/query``: the answer as an Arrow stream, or as JSON."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from pydantic import ValidationError

from anew.api.gate import Gate
from anew.api.tables.query_wire import ARROW_TYPE, HEADER_READS, AskQuery, json_rows
from anew.core.errors import AnewError, InvalidRequest
from anew.node.exchange import Answer, Request, error_answer
from anew.node.tables.granting import may_read
from anew.node.tables.querying import QueryAnswer, TableQueries
from anew.sql.sandbox import read_answer

QUERY_PATH = "/v1/query"


class QueryFace:
    """Answers queries; each waits in a thread, so that nothing here blocks the readers.

    Attributes:
        counts: Outcome, ``answered`` or an error's code → how many queries had it.
    """

    def __init__(self, queries: TableQueries, gate: Gate) -> None:
        self._queries, self._gate = queries, gate
        self.counts: Counter[str] = Counter()

    async def answer(self, request: Request) -> Answer:
        """The answer; errors are answers too."""
        try:
            answer = await asyncio.get_running_loop().run_in_executor(None, self._answered, request)
        except AnewError as error:
            self.counts[error.code] += 1
            return error_answer(error, [])
        self.counts["answered"] += 1
        return answer

    def _answered(self, request: Request) -> Answer:
        found = self._queries.answer(_asked(request).sql, may_read(self._gate, request))
        if request.wants_json:
            return Answer(200, [("content-type", "application/json")], _as_json(found))
        reads = json.dumps([read.shown for read in found.reads])
        return Answer(200, [("content-type", ARROW_TYPE), (HEADER_READS, reads)], found.stream)


def _asked(request: Request) -> AskQuery:
    if request.method != "POST":
        raise InvalidRequest("bad_method", "a query is posted", found=request.method, expected="POST")
    try:
        return AskQuery.model_validate_json(request.body)
    except ValidationError as error:
        raise InvalidRequest(
            "bad_request", "this is no query", found=str(error), expected='{"sql": "SELECT …"}'
        ) from None


def _as_json(found: QueryAnswer) -> bytes:
    table = read_answer(found.stream)
    reads = [read.shown for read in found.reads]
    try:
        body = {"columns": table.column_names, "rows": json_rows(table), "reads": reads}
        return json.dumps(body).encode()
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidRequest(
            "not_in_json",
            "the answer has values that JSON cannot hold",
            found=str(error),
            hint="ask for Arrow, or cast them to VARCHAR",
        ) from None
