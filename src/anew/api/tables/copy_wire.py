"""A node's copies of segments on the wire: from them files of the deep store that were lost come back."""

from __future__ import annotations

from pydantic import Field

from anew.api.wire import Request, Wire
from anew.core.tables.segment import Contents

COPY_PATH = "/v1/segments/copy"
BYTES_PATH = "/v1/segments/bytes"
MOST_BYTES = 8 * 1024 * 1024
"""How much of a copy one answer holds at most."""


class AskCopy(Request):
    """Which copy a node serves of a segment."""

    table: str
    segment: str


class AskBytes(AskCopy):
    """A part of the copy that was described, as long as the node still serves that one."""

    build: str
    config_hash: str | None
    offset: int = Field(ge=0)


class SegmentCopy(Wire):
    """A copy that a node serves.

    Attributes:
        build: The build that it was fetched of.
        config_hash: With what it was made.
        rebuilt: Whether the node made it again by itself: its bytes are not those of the build.
    """

    build: str
    config_hash: str | None
    rebuilt: bool
    bytes: int
    contents: Contents
