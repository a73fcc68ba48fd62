"""Reading a request's body within the controller's limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable

from anew.api.security import RequestLimits, too_large, too_slow


async def read_body(chunks: AsyncIterable[bytes], declared: str | None, limits: RequestLimits) -> bytes:
    """The whole body.

    Args:
        chunks: The body as it comes.
        declared: The header ``Content-Length``; None where there is none.
        limits: How large it may be, and how long it may take.

    Raises:
        TooLarge: ``request_too_large``: before anything is read where the header says so.
        TooSlow: ``request_too_slow``.
    """
    if declared is not None and declared.isdigit() and int(declared) > limits.body_bytes:
        raise too_large(int(declared), limits)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _counted(chunks, limits)
    except TimeoutError:
        raise too_slow(limits) from None


async def _counted(chunks: AsyncIterable[bytes], limits: RequestLimits) -> bytes:
    read: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limits.body_bytes:
            raise too_large(size, limits)
        read.append(chunk)
    return b"".join(read)
