"""Processes that change one store at once: ``python -m anew.testing.catalog_racer URL PROCESSES CHANGES TIMEOUT``.

Each prints a JSON line per change, ``{"operation", "fence", "outcome"}`` with the outcome ``done`` or ``unknown``, and
ends after so many changes that are done, or when the standard input that they share ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from anew.catalog.change import Change, Operation, PutStore
from anew.catalog.database import DatabaseCatalog
from anew.core.errors import OutcomeUnknown, Refused, Unreachable
from anew.testing.clock import NOON_MS

STORE = "flights"
_PAUSE_SECONDS = 0.05


def race(url: str, name: str, changes: int, timeout_seconds: float) -> None:
    """Count the store's next version up, one compare-and-swap after the other; what loses is tried again."""
    stopped = threading.Event()
    threading.Thread(target=_watch, args=(stopped,), daemon=True).start()
    catalog = _opened(url, timeout_seconds, stopped)
    done = attempt = 0
    while catalog is not None and done < changes and not stopped.is_set():
        attempt += 1
        try:
            outcome = _change(catalog, f"{name}-{attempt}")
        except Unreachable:
            stopped.wait(_PAUSE_SECONDS)
            continue
        if outcome is not None:
            done += outcome["outcome"] == "done"
            sys.stdout.write(json.dumps(outcome) + "\n")
            sys.stdout.flush()


def _opened(url: str, timeout_seconds: float, stopped: threading.Event) -> DatabaseCatalog | None:
    while not stopped.is_set():
        try:
            return DatabaseCatalog(url, timeout_seconds)
        except Unreachable:
            stopped.wait(_PAUSE_SECONDS)
    return None


def _change(catalog: DatabaseCatalog, operation: str) -> dict[str, object] | None:
    store = catalog.store(STORE)
    if store is None:
        raise AssertionError("the race needs its store")
    after = store.model_copy(update={"next_version": store.next_version + 1})
    change = Change(Operation(operation, NOON_MS, "racer", "count", STORE), (PutStore(after, store.revision),))
    try:
        if not catalog.commit(change):
            raise AssertionError(f"{operation} was committed by somebody else")
    except Refused as error:
        if error.code != "revision_conflict":
            raise
        return None
    except OutcomeUnknown:
        return {"operation": operation, "fence": store.revision, "outcome": "unknown"}
    return {"operation": operation, "fence": store.revision, "outcome": "done"}


def _watch(stopped: threading.Event) -> None:
    sys.stdin.read()
    stopped.set()


def main(url: str, processes: int, changes: int, timeout_seconds: float) -> int:
    """Race in so many processes, made before anything is open; 0 when all ended well."""
    children = []
    for number in range(processes):
        child = os.fork()
        if child == 0:
            race(url, f"racer-{number}", changes, timeout_seconds)
            os._exit(0)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
