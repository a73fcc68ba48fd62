"""Drivers of rebuilds, as a person on call looks for them: where each is, when it was heard last, and what failed."""

from __future__ import annotations

from pydantic import BaseModel

from anew.api.models import Problem
from anew.api.rebuilds import DriverView, FailureSeen
from anew.catalog.change import PutFlag, SwapFlag
from anew.controller.engine.commit import again_on_conflict, commit
from anew.controller.engine.context import Context
from anew.controller.engine.records import find
from anew.core.rebuild import DriverTrouble, Rebuild, SubjectId, driver_of

_FAILED = "rebuild failed/"
_MOST_CHARACTERS = 1_000
"""How much of an error the status and a line of history keep."""


def driver_view(context: Context, rebuild: Rebuild) -> DriverView:
    """Who makes a rebuild, where that process is and logs, and when it was heard last."""
    driver = driver_of(rebuild.driver)
    return DriverView(
        actor=driver.actor,
        host=driver.host,
        pid=driver.pid,
        log=driver.log,
        heard_at_ms=heard_at_ms(context, rebuild) if rebuild.driver else None,
        lease_until_ms=rebuild.lease_until_ms,
        silent_ms=silent_ms(context, rebuild),
        troubles=tuple(f"{trouble.loop}: {trouble.error}" for trouble in _troubles(rebuild)),
    )


def _troubles(rebuild: Rebuild) -> tuple[DriverTrouble, ...]:
    """What the driver said last of its loops; nothing where none is needed any more."""
    return rebuild.troubles if rebuild.driven else ()


def silent_ms(context: Context, rebuild: Rebuild) -> int | None:
    """For how long the driver has not been heard; None where none is needed, or it was heard a moment ago."""
    if not rebuild.driven or not rebuild.driver:
        return None
    silent = context.clock() - heard_at_ms(context, rebuild)
    return silent if silent >= context.limits.takeover_seconds * 1000 else None


def driver_problems(context: Context, rebuild: Rebuild) -> list[Problem]:
    """What a driver says of its own loops, and one that has not been heard for so long that another may take over."""
    return [*_loop_problems(context, rebuild), *_silence(context, rebuild)]


def _loop_problems(context: Context, rebuild: Rebuild) -> list[Problem]:
    return [
        Problem(
            what=f"the driver of rebuild {rebuild.id} of {rebuild.subject.name}: its loop {trouble.loop} "
            f"does not get on: {trouble.error}",
            since_ms=heard_at_ms(context, rebuild) - trouble.for_ms,
            hint="what is broken is in the error; the driver goes on by itself once it is mended",
        )
        for trouble in _troubles(rebuild)
    ]


def _silence(context: Context, rebuild: Rebuild) -> list[Problem]:
    silent = silent_ms(context, rebuild)
    if silent is None or not context.attention.listened_for(context.limits.takeover_seconds, context.clock()):
        return []
    driver = driver_of(rebuild.driver)
    left_seconds = max(0, rebuild.lease_until_ms - context.clock()) // 1000
    where = f"pid {driver.pid} on {driver.host}" + (f", log {driver.log}" if driver.log else "")
    of = f"the driver of rebuild {rebuild.id} of {rebuild.subject.name} ({where})"
    told = f"{of} has not been heard for {silent // 1000} s"
    becomes, hint = context.subjects.of(rebuild).after_silence(rebuild, left_seconds)
    return [
        Problem(
            what=f"{told}; {becomes}",
            since_ms=heard_at_ms(context, rebuild),
            hint=hint,
        )
    ]


class _Failure(BaseModel):
    """What a flag keeps of a rebuild that failed."""

    rebuild: str
    error: str
    at_ms: int


def first_line(error: str) -> str:
    """The first line of an error: what follows may be a traceback with lines of the user's own code."""
    line = error.partition("\n")[0]
    return line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…"


def note_failure(rebuild: Rebuild, error: str, now_ms: int) -> PutFlag:
    """Keep that a rebuild failed; part of the transaction that ends it."""
    kept = _Failure(rebuild=rebuild.id, error=first_line(error), at_ms=now_ms)
    return PutFlag(_flag_of(rebuild.subject), kept.model_dump_json())


def forget_failure(of: SubjectId) -> PutFlag:
    """A later rebuild of the same subject went well: part of the transaction that ends it."""
    return PutFlag(_flag_of(of), None)


def _flag_of(subject: SubjectId) -> str:
    return f"{_FAILED}{subject.kind}/{subject.name}"


def see_failure(context: Context, rebuild_id: str, actor: str) -> FailureSeen:
    """Somebody has seen that a rebuild failed: it is no problem any more; the same again changes nothing.

    Raises:
        NotFound: ``unknown_rebuild``.
    """
    if failed_subject(context, rebuild_id) is None:
        # What is told may be put away although its record was forgotten before.
        find(context, rebuild_id)

    def see() -> None:
        for flag, kept in context.catalog.flags().items():
            if flag.startswith(_FAILED) and _Failure.model_validate_json(kept).rebuild == rebuild_id:
                _, _, name = flag.removeprefix(_FAILED).partition("/")
                operation = context.operation("failure seen", name, actor, rebuild=rebuild_id)
                # Only this failure: a newer one that came meanwhile was not seen.
                commit(context, operation, SwapFlag(flag, kept, None))

    again_on_conflict(see)
    return FailureSeen(rebuild=rebuild_id, seen=True)


def failed_subject(context: Context, rebuild_id: str) -> str | None:
    """The name of what a rebuild was of whose failure is still told; None: it is not."""
    told = (of for of, failure in _failures(context).items() if failure.rebuild == rebuild_id)
    return next((of.partition("/")[2] for of in told), None)


def failure_problems(context: Context) -> list[Problem]:
    """Rebuilds that failed, until somebody has seen it, a later one went well, or the time for it is over."""
    return [
        Problem(
            what=f"rebuild {failure.rebuild} of {name} failed: {failure.error}",
            since_ms=failure.at_ms,
            hint=f"anew rebuild show {failure.rebuild}; once it is understood: anew rebuild seen {failure.rebuild}",
        )
        for name, failure in _unseen(context)
    ]


def failed_subjects(context: Context) -> list[str]:
    """The names of what `failure_problems` is about."""
    return list(dict.fromkeys(name for name, _ in _unseen(context)))


def _unseen(context: Context) -> list[tuple[str, _Failure]]:
    """Names, and what is kept of the failures; two subjects of different kinds may have the same one."""
    failures = _failures(context)
    if not failures:
        return []
    since_ms = {
        f"{subject.name}/{name}": well_ms
        for subject in context.subjects.all
        for name, well_ms in subject.well_since(context).items()
    }
    oldest_ms = context.clock() - int(context.limits.failure_shown_seconds * 1000)
    return [
        (of.partition("/")[2], failure)
        for of, failure in failures.items()
        if of in since_ms and failure.at_ms >= max(oldest_ms, since_ms[of])
    ]


def _failures(context: Context) -> dict[str, _Failure]:
    flags = context.catalog.flags()
    return {
        name.removeprefix(_FAILED): _Failure.model_validate_json(value)
        for name, value in flags.items()
        if name.startswith(_FAILED)
    }


def heard_at_ms(context: Context, rebuild: Rebuild) -> int:
    """When the driver gave its last sign of life."""
    return rebuild.lease_until_ms - int(context.limits.lease_seconds * 1000)
