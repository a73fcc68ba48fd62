"""Parameters that several routes have."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query

from anew.api.pages import MAX_ITEMS

After = Annotated[
    str | None,
    # PostgreSQL has no texts with a zero byte.
    Query(
        max_length=400, pattern=r"^[^\x00]*$", description="Go on after this key: the field next of the page before."
    ),
]
VersionNumber = Annotated[int | None, Query(ge=0, le=2**31 - 1)]
Limit = Annotated[int, Query(ge=1, le=MAX_ITEMS, description="How many items the page holds at most.")]
Actor = Annotated[str, Header(alias="anew-actor")]
Revision = Annotated[
    int, Query(ge=0, le=2**63 - 1, description="A revision of the catalog: the field next of an answer.")
]
WaitSeconds = Annotated[float, Query(ge=0, le=30, allow_inf_nan=False)]
