"""The tables of a catalog in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from anew.catalog.change import KnownRequest, Reclaim
from anew.core.jobs.batch import BatchRecord
from anew.core.jobs.deadletters import KeptLetter, LetterPlace
from anew.core.jobs.job import Job
from anew.core.rebuild import Rebuild
from anew.core.stores.store import Store, Version
from anew.core.tables.config import SegmentConfig
from anew.core.tables.rebuild import Done
from anew.core.tables.segment import Segment
from anew.core.tables.table import Table
from anew.core.topics.topic import Topic


@dataclass(frozen=True, slots=True)
class Tables:
    """All rows; never changed, but replaced whole by each commit."""

    stores: dict[str, Store] = field(default_factory=dict)
    past_versions: dict[tuple[str, int], tuple[int, Version]] = field(default_factory=dict)
    rebuilds: dict[str, Rebuild] = field(default_factory=dict)
    used_numbers: dict[str, int] = field(default_factory=dict)
    requests: dict[str, KnownRequest] = field(default_factory=dict)
    request_times: dict[str, int] = field(default_factory=dict)
    reclaims: dict[str, Reclaim] = field(default_factory=dict)
    dead_letters: dict[tuple[str, int, int], tuple[str, str]] = field(default_factory=dict)
    set_aside: dict[tuple[str, int, int], bool] = field(default_factory=dict)
    letter_times: dict[tuple[str, int, int], int] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    configs: dict[str, SegmentConfig] = field(default_factory=dict)
    segments: dict[tuple[str, str], Segment] = field(default_factory=dict)
    slots: dict[tuple[str, int], int] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    done: dict[tuple[str, str], Done] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    used_generations: dict[str, int] = field(default_factory=dict)
    batches: dict[tuple[str, int, int], BatchRecord] = field(default_factory=dict)
    job_dead_letters: dict[tuple[str, LetterPlace], KeptLetter] = field(default_factory=dict)

    def copy(self) -> Tables:
        """Tables that can be changed without changing these."""
        return Tables(**{row.name: dict(getattr(self, row.name)) for row in fields(self)})
