"""The HTTP face of verifications, ``/v1/stores/{store}/versions/{n}/verify…``: nothing here blocks the readers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable

from pydantic import BaseModel, ValidationError

from anew.api.stores.node_wire import HEADER_STORE_UID, JSON_TYPE
from anew.api.stores.verifying import (
    MAX_WAIT_SECONDS,
    AimVerify,
    EntriesPage,
    ExportedReplica,
    ExportReplica,
    VerifyView,
)
from anew.core.errors import AnewError, InvalidRequest, NotFound
from anew.core.fingerprint import BUCKETS
from anew.node.exchange import Answer, Request, error_answer, parse_number
from anew.node.stores.serving import NotHere, Picture
from anew.node.stores.verifying import Verifications
from anew.node.stores.verifyjob import Entries, Exported

_PREFIX = "/v1/stores/"


def is_verification(path: str) -> bool:
    """Whether a path below ``/v1/stores/`` is answered here."""
    return "/verify" in path and path[len(_PREFIX) :].split("/")[3:4] == ["verify"]


class VerifyFace:
    """Answers requests about verifications. Reads may be disabled: what is verified need not be served."""

    def __init__(self, verifications: Verifications, picture: Callable[[], Picture]) -> None:
        self._verifications = verifications
        self._picture = picture

    async def answer(self, request: Request) -> Answer:
        """The answer; errors are answers too."""
        try:
            name, _, version, _, *rest = request.path[len(_PREFIX) :].split("/")
            return _json(await self._route(request, name, version, rest))
        except AnewError as error:
            return error_answer(error, [])

    async def _route(self, request: Request, name: str, version: str, rest: list[str]) -> BaseModel | None:
        if rest:
            # A token may be for the store in the path alone, and job ids are no secrets.
            self._verifications.check_store(rest[0], self._picture().store(name, None).desired.uid)
        match request.method, rest:
            case "POST", []:
                return self._begin(request, name, version)
            case "PUT", [job]:
                return self._verifications.aim(job, _aim(request.body).position)
            case "GET", [job]:
                return await self._view(request, job)
            case "GET", [job, "keys"]:
                return await self._entries(request, job)
            case "POST", [job, "export"]:
                return await self._export(request, job)
            case "DELETE", [job]:
                self._verifications.end(job)
                return None
        raise NotFound("unknown_path", "there is nothing at this path", found=f"{request.method} {request.path}")

    def _begin(self, request: Request, name: str, version: str) -> VerifyView:
        store = self._picture().store(name, request.header(HEADER_STORE_UID))
        number = parse_number(version, "version")
        if number not in store.versions:
            raise NotHere(
                "not_here",
                f"this node holds nothing of version {number} of {name}",
                found=sorted(store.versions),
                expected=number,
                hint="ask the controller for the store's routing again",
            )
        return self._verifications.begin(store.desired.uid, number)

    async def _view(self, request: Request, job: str) -> VerifyView:
        """The view as soon as its stage is another one than ``after``, or when the wait is over."""
        after = request.query.get("after")
        wait_seconds = min(_seconds(request.query.get("wait_seconds", "0")), MAX_WAIT_SECONDS)
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        until = loop.time() + wait_seconds
        with self._verifications.heard(lambda: _ring(loop, changed)):
            while (view := self._verifications.view(job)).stage.value == after and loop.time() < until:
                try:
                    await asyncio.wait_for(changed.wait(), until - loop.time())
                except TimeoutError:
                    continue
                changed.clear()
        return view

    async def _entries(self, request: Request, job: str) -> EntriesPage:
        query = request.query
        place = (
            parse_number(query.get("partition", ""), "partition"),
            parse_number(query.get("sub", "0"), "sub-partition"),
        )
        buckets = frozenset(parse_number(text, "bucket") for text in query.get("buckets", "").split(","))
        if max(buckets) >= BUCKETS:
            raise InvalidRequest("bad_number", "there is no such bucket", found=max(buckets), expected=f"< {BUCKETS}")
        after = _hex(query["after"]) if "after" in query else None
        found: Entries = await asyncio.wrap_future(self._verifications.entries(job, place, buckets, after))
        self._verifications.view(job)  # asked about until just now
        next_after = None if found.next_after is None else found.next_after.hex()
        return EntriesPage(keys=tuple(key.hex() for key in found.keys), hashes=found.hashes, next_after=next_after)

    async def _export(self, request: Request, job: str) -> ExportedReplica:
        try:
            wanted = ExportReplica.model_validate_json(request.body)
        except ValidationError as error:
            message = "the body does not say what to export"
            raise InvalidRequest(
                "bad_export", message, found=str(error), expected="partition, place and path"
            ) from None
        exported: Exported = await asyncio.wrap_future(self._verifications.export(job, wanted))
        self._verifications.view(job)  # asked about until just now
        dictionary = exported.dictionary
        return ExportedReplica(
            file=exported.file,
            position=exported.position,
            dictionary=None if dictionary is None else base64.b64encode(dictionary).decode(),
        )


def _ring(loop: asyncio.AbstractEventLoop, changed: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(changed.set)


def _aim(body: bytes) -> AimVerify:
    try:
        return AimVerify.model_validate_json(body)
    except ValidationError as error:
        raise InvalidRequest(
            "bad_position",
            "the body names no position",
            found=str(error),
            expected='{"position": {"<feed>": {"<partition>": <offset>}}}',
        ) from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise InvalidRequest("bad_number", "the wait is no time", found=text, expected="seconds")
    return seconds


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidRequest("bad_key", "the key is not in hex", found=text, expected="the key's Avro body") from None


def _json(answer: BaseModel | None) -> Answer:
    body = b"{}" if answer is None else answer.model_dump_json().encode()
    return Answer(200, [("content-type", JSON_TYPE)], body)
