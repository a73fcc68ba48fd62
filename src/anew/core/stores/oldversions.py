"""Documents of versions from before a version's life in a fabric was one value.

They lie in catalogs that the migration has not rewritten yet, and for ever in records in deep stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BY_FABRIC = ("statuses", "since_ms", "assignment", "topics", "swap_from")
_OF_ALL = ("manifest", "start", "ready_target", "error")


def by_fabric(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a version with one object for each fabric (`anew.core.stores.store.VersionInFabric`).

    One that has them already is left as it is. What was said once of all fabrics is said of each.
    """
    if "statuses" not in stated:
        return dict(stated)
    of_all = {name: stated[name] for name in _OF_ALL if stated.get(name) is not None}
    fabrics = {
        fabric: {
            "status": status,
            "since_ms": stated.get("since_ms", {}).get(fabric, stated["created_at_ms"]),
            "swap_from": stated.get("swap_from", {}).get(fabric, 0),
            "topic": stated.get("topics", {}).get(fabric),
            "assignment": stated.get("assignment", {}).get(fabric, {}),
            **of_all,
        }
        for fabric, status in stated["statuses"].items()
    }
    kept = {name: value for name, value in stated.items() if name not in (*_BY_FABRIC, *_OF_ALL)}
    return {**kept, "fabrics": fabrics}
