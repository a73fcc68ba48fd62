"""The HTTP face of a node's copies of segments: what it serves, and the bytes of it, part by part."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from pydantic import ValidationError

from anew.api.gate import Gate
from anew.api.tables.copy_wire import COPY_PATH, MOST_BYTES, AskBytes, AskCopy, SegmentCopy
from anew.core.errors import AnewError, InvalidRequest, NotFound, Refused
from anew.node.exchange import Answer, Request, error_answer
from anew.node.tables.granting import may_read
from anew.node.tables.hosting import SegmentHost, ServedFile

_Asked = TypeVar("_Asked", bound=AskCopy)


class CopyFace:
    """Tells what the node holds of a segment; files are read in a thread, so that nothing here blocks the readers."""

    def __init__(self, segments: SegmentHost, gate: Gate) -> None:
        self._segments, self._gate = segments, gate

    async def answer(self, request: Request) -> Answer:
        """The answer; errors are answers too."""
        try:
            if request.path == COPY_PATH:
                found = self._described(request)
                return Answer(200, [("content-type", "application/json")], found.model_dump_json().encode())
            asked = self._asked(AskBytes, request)
            content = await asyncio.get_running_loop().run_in_executor(None, self._part, asked)
        except AnewError as error:
            return error_answer(error, [])
        return Answer(200, [("content-type", "application/octet-stream")], content)

    def _described(self, request: Request) -> SegmentCopy:
        asked = self._asked(AskCopy, request)
        return _copy(self._served(asked.table, asked.segment))

    def _part(self, asked: AskBytes) -> bytes:
        served = self._served(asked.table, asked.segment)
        copy = _copy(served)
        if (copy.build, copy.config_hash) != (asked.build, asked.config_hash) or served.path is None:
            raise Refused(
                "other_copy",
                "the node serves another copy of the segment by now",
                found=f"{copy.build}, {copy.config_hash}",
                expected=f"{asked.build}, {asked.config_hash}",
                hint="ask again what it serves",
            )
        with self._segments.reading([served.path]):
            try:
                with served.path.open("rb") as file:
                    file.seek(asked.offset)
                    return file.read(MOST_BYTES)
            except FileNotFoundError:
                # Replaced between the look and the hold.
                raise _not_here(asked.table, asked.segment) from None

    def _served(self, table: str, segment: str) -> ServedFile:
        known = self._segments.tables().get(table)
        if known is not None:
            for file in self._segments.files_of(known):
                if file.segment.name == segment and file.copy is not None:
                    return file
        raise _not_here(table, segment)

    def _asked(self, model: type[_Asked], request: Request) -> _Asked:
        if request.method != "POST":
            raise InvalidRequest("bad_method", "what is asked for is posted", found=request.method, expected="POST")
        try:
            asked = model.model_validate_json(request.body)
        except ValidationError as error:
            raise InvalidRequest(
                "bad_request", "this names no copy", found=str(error), expected=", ".join(model.model_fields)
            ) from None
        may_read(self._gate, request)(asked.table)
        return asked


def _copy(served: ServedFile) -> SegmentCopy:
    assert served.copy is not None
    copy = served.copy
    return SegmentCopy(
        build=copy.build,
        config_hash=copy.config_hash,
        rebuilt=not copy.original,
        bytes=copy.bytes,
        contents=copy.contents,
    )


def _not_here(table: str, segment: str) -> NotFound:
    return NotFound("not_here", f"the node has no copy of {segment} of {table}", found=f"{table}/{segment}")
