"""Parameters that several routes have."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query

Actor = Annotated[str, Header(alias="anew-actor")]
AtLeastOne = Annotated[int, Query(ge=1)]
WaitSeconds = Annotated[float, Query(ge=0, le=30, allow_inf_nan=False)]
