"""What must hold of everything that leaves a store's document, and of everything that the catalog forgets.

`tests.simulation.years` watches it, because histories of minutes are over before a retention of days ends. Each breach
is kept with the name of its invariant; the names are what planted bugs are found by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from anew.catalog.change import Operation
from anew.core.stores.store import Store, Version
from anew.testing.memory.catalogtables import Tables


@dataclass
class Keeping:
    """Watches the commits of a catalog.

    Attributes:
        files_below: The paths of all files below a directory.
        request_ms: How long a request id is known.
        breaches: (invariant, what was seen), in the order in which they were seen.
    """

    files_below: Callable[[str], list[str]]
    request_ms: int
    breaches: list[tuple[str, str]] = field(default_factory=list)

    def breach(self, invariant: str, seen: str) -> None:
        """Keep a breach; one of each invariant is enough."""
        if invariant not in dict(self.breaches):
            self.breaches.append((invariant, seen))

    def on_commit(self, before: Tables, after: Tables, operation: Operation) -> None:
        """What a commit took out."""
        for uid, store in after.stores.items():
            old = before.stores.get(uid)
            if old is not None and old is not store:
                for version in old.versions:
                    if store.version(version.number) is None:
                        self._check_left(after, store, version)
        if len(after.rebuilds) < len(before.rebuilds):
            self._check_rebuilds(before, after)
        if len(after.requests) < len(before.requests):
            self._check_requests(before, after, operation.at_ms)

    def _check_left(self, after: Tables, store: Store, version: Version) -> None:
        files = self.files_below(version.path)
        if files:
            self.breach("what leaves has no files", f"{version.name_in(store.name)}: {files[:3]} (R15)")
        rebuild = after.rebuilds.get(version.rebuild)
        if rebuild is not None and not rebuild.ended:
            self.breach("what leaves has ended", f"{version.name_in(store.name)}: {rebuild.id} is {rebuild.status}")

    def _check_rebuilds(self, before: Tables, after: Tables) -> None:
        gone = before.rebuilds.keys() - after.rebuilds.keys()
        running = [uid for uid in gone if not before.rebuilds[uid].ended]
        if running:
            self.breach("a rebuild that runs is known", f"{running[:3]}")
        made = {version.rebuild for store in after.stores.values() for version in store.versions} & gone
        if made:
            self.breach("a rebuild is known while what it made is there", f"{sorted(made)[:3]}")
        loaded = {segment.build.rebuild for segment in after.segments.values() if segment.prefix is None} & gone
        if loaded:
            self.breach("a rebuild is known while a segment asks for it", f"{sorted(loaded)[:3]}")
        asked = sorted(key for key, known in after.requests.items() if known.result in gone)
        if asked:
            self.breach("a rebuild is known while a request names it", f"{asked[:3]} (R22)")

    def _check_requests(self, before: Tables, after: Tables, at_ms: int) -> None:
        for key in before.requests.keys() - after.requests.keys():
            rebuild = after.rebuilds.get(before.requests[key].result)
            if rebuild is not None and not rebuild.ended:
                self.breach("a request is known while its rebuild runs", f"{key}: {rebuild.id} (R22)")
            age_ms = at_ms - before.request_times[key]
            if age_ms < self.request_ms:
                self.breach("a request is known for its retention", f"{key} is {age_ms} ms old (R22)")
