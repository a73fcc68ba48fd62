"""The story of a history of a job: store, input and job are made, steps happen, then calm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anew.api.stores.requests import CreateStore
from anew.core.stores.store import VersionStatus
from anew.testing.builders import FABRIC, KEY_SCHEMA, VALUE_SCHEMA
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

    def _script(self) -> None:
        settings = self.history.settings
        for number in range(self.history.controllers):
            self._start_controller(f"controller-{number}")
        for number in range(self.history.nodes):
            self._start_node(f"node-{number}")
        self._until(lambda: len(self.machines.database.nodes) == self.history.nodes, 20_000)
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
        self._faults(self.history.trouble / 1000)
        self.world.spawn(self.reader, self._read_on)
        for step in self.history.steps:
            self._take(step)
            if self.checks.breaches:
                return
        self._calm_down()

    def _create(self) -> None:
        settings: dict[str, Any] = {k: v for k, v in self.history.settings.items() if k not in OF_THE_JOB}
        settings["hybrid"] = self.history.settings["pushed"]
        request = CreateStore(
            name=STORE,
            key_schema=KEY_SCHEMA,
            value_schema=VALUE_SCHEMA,
            settings=settings,
            request_id=self.machines.new_id(),
        )
        self._again(lambda: self.client.create_store(request))

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
        is_served = bool(served_ms) and self.world.now_ms - min(served_ms) > _KNOWN_MS
        is_soft = HARD_FOR_READERS.isdisjoint(step.what for step in self.history.steps)
        return self.history.trouble == 0 and is_soft and is_served


def _tell(history: History, machines: Machines) -> Outcome:
    story = JobStory(history, machines)
    outcome = story.tell()
    return replace(outcome, counts={**outcome.counts, **story.checks.counts()})


def run_job(history: History) -> Outcome:
    """Run a history of a job to its end."""
    return run(history, tell=_tell, replacements=job_replacements)
