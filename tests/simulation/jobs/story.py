"""The story of a history of a job: store, input and job are made, steps happen, then calm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anew.core.stores.store import VersionStatus
from anew.testing.builders import FABRIC
from tests.simulation.history import KEYS, History
from tests.simulation.jobs.history import HARD_FOR_READERS, OF_THE_JOB
from tests.simulation.jobs.parts import job_replacements
from tests.simulation.jobs.steps import JobSteps
from tests.simulation.parts import Machines, store_client
from tests.simulation.run import run
from tests.simulation.scene import STORE
from tests.simulation.story import Outcome, Story

_SERVED = {VersionStatus.CURRENT, VersionStatus.BACKUP}
_KNOWN_MS = 8_000
"""So long after its first version a store's clients know of it."""


class JobStory(JobSteps, Story):
    """A history of a job from its beginning to its end."""

    def _open(self) -> None:
        """See `Story._open`."""
        settings = self.history.settings
        self._create()
        self.make_topic()
        if settings["pushed"]:
            self.push(("k0", "k1", "k2"), None, False)
            self._until(self._has_version, 60_000)
        if settings["repushed"]:
            # Its version may be made, or loaded, when the job begins.
            self.repush("")
            self.world.sleep(settings["repushed"])
        self.feed(("k0", "k1"), None, 0)
        self.feed(("k2", "k5"), 500, 1)
        self.make_job(settings["function"], settings["begin"])

    def _settings(self) -> dict[str, Any]:
        """See `Scene._settings`."""
        of_store = {k: v for k, v in super()._settings().items() if k not in OF_THE_JOB}
        return of_store | {"hybrid": self.history.settings["pushed"]}

    def _read_all(self) -> None:
        """In the end a reader sees just what must be there."""
        stores = self.machines.database.tables.stores.values()
        store = next((each for each in stores if each.deleted_at_ms is None), None)
        if store is None or not store.current.get(FABRIC, 0):
            return
        number = store.current[FABRIC]
        ends = {
            (at.feed, at.partition): len(self.machines.topics.ever[feed.topic_uid].partitions[at.partition].rows)
            for feed in store.feeds
            for at in feed.feed_partitions()
        }
        served = self.checks.model(store.uid, number).served(ends)
        reader = store_client(self.machines, self.operator, STORE)
        for key, one in zip(KEYS, reader.get_many(list(KEYS)), strict=True):
            expected: Any = served.get(key)
            seen = None if one is None else (one.value["text"], one.written_at)
            if seen != (expected and (expected.text, expected.time_ms)):
                self.checks.breach("readers see it", f"{key}: {seen}, expected {expected}")

    @property
    def calm_reads(self) -> bool:
        """Whether nothing happens in this history that may keep a reader from an answer, once a version serves."""
        stores = self.machines.database.tables.stores.values()
        served_ms = [v.fabrics[FABRIC].since_ms for store in stores for v in store.versions if v.has(_SERVED)]
        # A controller that said it by a clock that had gone back said an earlier time.
        back_ms = max((step.arguments[1] for step in self.history.steps if step.what == "clock_back"), default=0)
        is_served = bool(served_ms) and self.world.now_ms - min(served_ms) > _KNOWN_MS + back_ms
        is_soft = HARD_FOR_READERS.isdisjoint(step.what for step in self.history.steps)
        return self.history.trouble == 0 and is_soft and is_served


def _tell(history: History, machines: Machines) -> Outcome:
    story = JobStory(history, machines)
    outcome = story.tell()
    return replace(outcome, counts={**outcome.counts, **story.checks.counts()})


def run_job(history: History) -> Outcome:
    """Run a history of a job to its end."""
    return run(history, tell=_tell, replacements=job_replacements)
