"""What changes between a job's live generation and the next one, and which ways to it each change leaves (case F2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from anew.core.jobs.code import JobCode
from anew.core.jobs.generation import Generation
from anew.core.jobs.inputs import JobInput
from anew.core.jobs.leftovers import why_code_leaves
from anew.core.jobs.plan import DEPLOY, PARALLEL, SIMPLE, JobPlan, Mode
from anew.core.plan import Value

WAYS: tuple[Mode, ...] = (DEPLOY, SIMPLE, PARALLEL)
"""From the one that does least to the one that does most."""
_SETTINGS = ("master", "conf", "max_records", "on_bad_record", "dead_letter_limit")


class JobChange(Value):
    """One thing that changes.

    Attributes:
        what: ``code``, ``parameter NAME``, ``file NAME``, ``environment``, ``input NAME``, or a setting of the run.
        now: As the live generation has it; null: it has none.
        wanted: As the next one would have it; likewise.
        allows: The ways to the next generation that this change leaves: ``deploy``, ``simple``, ``parallel``.
    """

    what: str
    now: Any
    wanted: Any
    allows: tuple[Mode, ...]


def changes_between(line: Sequence[Generation], plan: JobPlan, *, by_key: bool) -> tuple[JobChange, ...]:
    """What a planned generation changes.

    Args:
        line: The live generation, and those before it that wrote into its output.
        plan: The next one, in whatever way.
        by_key: Whether what is written into the output takes the place of what was written with the same key.
    """
    live = line[0]
    is_left = by_key and any(why_code_leaves(each.code, plan.code) is not None for each in line)
    # What a generation remembers is not carried on.
    ways = (SIMPLE, PARALLEL) if live.code.state or plan.code.state else WAYS
    of_code = tuple(way for way in ways if way != SIMPLE or not is_left)
    return (
        *_code(live.code, plan.code, of_code, ways),
        *_inputs(live.inputs, plan.inputs),
        *(
            JobChange(what=name, now=getattr(live, name), wanted=getattr(plan, name), allows=ways)
            for name in _SETTINGS
            if getattr(live, name) != getattr(plan, name)
        ),
    )


def _code(live: JobCode, wanted: JobCode, allows: tuple[Mode, ...], ways: tuple[Mode, ...]) -> Iterator[JobChange]:
    if live.entry != wanted.entry:
        yield JobChange(what="function", now=live.entry, wanted=wanted.entry, allows=allows)
    if live.archive != wanted.archive:
        yield JobChange(what="code", now=live.archive[:12], wanted=wanted.archive[:12], allows=allows)
    for kind, before, after in (("parameter", live.params, wanted.params), ("file", live.files, wanted.files)):
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                yield JobChange(what=f"{kind} {name}", now=before.get(name), wanted=after.get(name), allows=allows)
    if live.environment != wanted.environment:
        now, then = str(live.environment), str(wanted.environment)
        yield JobChange(what="environment", now=now, wanted=then, allows=ways)


def _inputs(live: Sequence[JobInput], wanted: Sequence[JobInput]) -> Iterator[JobChange]:
    before, after = {of.name: of for of in live}, {of.name: of for of in wanted}
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        same_topic = old is not None and new is not None and old.topic_uid == new.topic_uid
        now, then = (None if of is None else of.model_dump(mode="json", exclude={"name"}) for of in (old, new))
        differs = sorted(key for key in (now or then or {}) if (now or {}).get(key) != (then or {}).get(key))
        yield JobChange(
            what=f"input {name}",
            now=now and {key: now[key] for key in differs},
            wanted=then and {key: then[key] for key in differs},
            # Positions in a topic that was made again mean nothing: nobody can go on from them.
            allows=WAYS if same_topic else (SIMPLE, PARALLEL),
        )
