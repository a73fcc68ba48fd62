"""Parameters that several routes have."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query

from anew.api.pages import MAX_ITEMS

After = Annotated[str | None, Query(description="Go on after this key: the field next of the page before.")]
Limit = Annotated[int, Query(ge=1, le=MAX_ITEMS, description="How many items the page holds at most.")]
Actor = Annotated[str, Header(alias="anew-actor")]
WaitSeconds = Annotated[float, Query(ge=0, le=30, allow_inf_nan=False)]
