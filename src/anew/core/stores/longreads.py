"""How long long reads may hold a version that nothing else keeps."""

from __future__ import annotations

from anew.core.stores.store import Version, VersionStatus

MAX_HOLD_TOTAL_SECONDS = 86_400
"""So long after a version ceased to be current everywhere its holds end for good, however often they are renewed.

The end is the version's and not a holder's: ids of holds are the readers' to choose, and a reader could take another.
"""


def last_hold_ms(version: Version) -> int | None:
    """Until when reads may hold a version at most, ms since the epoch; None while it serves, or follows a job."""
    if version.has({VersionStatus.CURRENT, VersionStatus.FOLLOWING}):
        return None
    since_ms = max((there.since_ms for there in version.fabrics.values()), default=version.created_at_ms)
    return since_ms + MAX_HOLD_TOTAL_SECONDS * 1000
