"""What a generation owns, and whether it may go: told before anything is reclaimed (case E9)."""

from __future__ import annotations

from anew.api.jobs.views import OwnedParts, OwnedView
from anew.controller.engine.context import Context
from anew.core.errors import Refused
from anew.core.jobs.generation import Generation, GenerationStatus
from anew.core.jobs.job import Job, check_may_go
from anew.core.jobs.places import folder_of


def owned_by(context: Context, job: Job, number: int) -> OwnedParts:
    """What goes with a generation when it is reclaimed, with sizes; nothing is changed.

    Raises:
        NotFound: ``unknown_generation``.
        Unreachable: A log or the deep store does not answer.
    """
    generation = job.generation(number)
    try:
        check_may_go(job, number)
        context.outputs.of_kind(job.output.kind).close(context, job.output.name, [generation.writes_to])
        stays = None
    except Refused as error:
        stays = f"{error.code}: {error}"
    return OwnedParts(job=job.name, generation=number, owned=tuple(_owned(context, job, generation)), stays=stays)


def _owned(context: Context, job: Job, generation: Generation) -> list[OwnedView]:
    if generation.status is GenerationStatus.RECLAIMED:
        return []
    deep_store = context.fabrics[job.fabric].deep_store
    folder = folder_of(job.uid, generation.number)
    sizes = [file.size_bytes for file in deep_store.list(folder)]
    found = [OwnedView(what="checkpoint", name=folder, bytes=sum(sizes))] if sizes else []
    others = [each for each in job.generations if each is not generation and not each.over]
    if any(each.writes_to == generation.writes_to for each in others):
        # Another one went on in its place: the output is that one's now.
        return found
    output = context.outputs.of_kind(job.output.kind)
    parts = output.owned(context, job.output.name, generation.writes_to)
    return found + [OwnedView(what=p.what, name=p.name, bytes=p.bytes, records=p.records) for p in parts]
