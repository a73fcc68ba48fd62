"""Which records of a topic count: what the batches of the generation recorded that wrote them."""

from __future__ import annotations

from anew.api.jobs.requests import OfBatches
from anew.api.jobs.views import CountedBatches
from anew.controller.engine.commit import found_by_name
from anew.controller.engine.context import Context
from anew.core.errors import Refused
from anew.core.jobs.committed import counted
from anew.core.jobs.generation import Generation
from anew.core.jobs.job import Job

MOST_COUNTED = 1_000
"""So many batches are told of at once."""


def counted_batches(context: Context, topic_name: str, asked: OfBatches) -> CountedBatches:
    """Which attempts of some batches count, of the generation that a topic's records name.

    Raises:
        NotFound: ``unknown_topic``.
        Refused: ``batch_forgotten``: no such generation is known to have written into the topic.
    """
    catalog = context.catalog
    topic = found_by_name("topic", topic_name, catalog.topic(topic_name), lambda: [t.name for t in catalog.topics()])
    # Its end is read before its batches: what is recorded in between is told as well.
    job, generation = _writer(context, topic.identity, asked)
    first = catalog.batches_from(job.uid, generation.number, 0, 1)
    found = catalog.batches_from(job.uid, generation.number, asked.first, MOST_COUNTED + 1)
    return CountedBatches(
        batches=tuple(map(counted, found[:MOST_COUNTED])),
        kept_from=first[0].batch if first else None,
        more=len(found) > MOST_COUNTED,
        final=generation.over,
    )


def _writer(context: Context, identity: str, asked: OfBatches) -> tuple[Job, Generation]:
    live = context.catalog.job(asked.job)
    named = ([] if live is None else [live]) + [j for j in context.catalog.deleted_jobs() if j.name == asked.job]
    for job in named:
        generation = job.find(asked.generation)
        if generation is not None and generation.writes_to == identity and not generation.unrecorded:
            return job, generation
    raise Refused(
        "batch_forgotten",
        f"which records of {asked.job}@{asked.generation} count is not known",
        found=f"no generation {asked.generation} of a job {asked.job} that wrote into {identity.partition('#')[0]}",
        expected="records of a generation whose batches the catalog knows",
        hint="read without --committed: then records of attempts that died are given too",
    )
