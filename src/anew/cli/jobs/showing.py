"""How jobs, their generations and their plans are shown to people."""

from __future__ import annotations

from anew.api.jobs.views import GenerationView, JobDiff, JobView
from anew.cli.jobs.checkpoints import time_text
from anew.cli.output import out, print_json, print_table
from anew.core.jobs.cutover import PlannedCut
from anew.core.jobs.plan import JobPlan
from anew.core.moment import duration_text, instant_text


def print_job(view: JobView, *, as_json: bool) -> None:
    """Say how a job stands."""
    if as_json:
        print_json(view)
        return
    inputs = ", ".join(f"{name}={topic}" for name, topic in view.inputs.items())
    serves = "none serves yet" if view.live is None else f"generation {view.live} serves"
    out().print(f"{view.name}: {view.status}, reads {inputs}, writes {view.output}, {serves}", markup=False)
    rows = [
        (g.number, status_of(g), g.entry, g.batch, g.lag_records, pace_of(g), left_of(g), _place(view, g), g.error)
        for g in view.generations
    ]
    print_table(["generation", "status", "code", "batch", "lag", "records/s", "left", "", "error"], rows)
    if view.planned_cut is not None:
        out().print(planned_text(view.planned_cut))
    for g in view.generations:
        if g.expires is not None:
            place = f"partition {g.expires.partition} of {g.expires.input}"
            out().print(
                f"{view.name}@{g.number}: records of {place} expire before they are read, "
                f"from {instant_text(g.expires.at_ms)} on"
            )
        if g.dead_letters:
            which = f"{view.name}@{g.number}"
            out().print(
                f"{which}: {g.dead_letters} dead letters of {g.dead_letter_limit}: anew job dead-letters {which}"
            )


def planned_text(planned: PlannedCut) -> str:
    """A cut-over that is to happen by itself."""
    since = "" if planned.not_before_ms is None else f", not before {instant_text(planned.not_before_ms)}"
    refused = "" if planned.error is None else f"; refused so far: {planned.error}"
    return f"generation {planned.generation} will serve once it has caught up{since}{refused}"


def print_plan(plan: JobPlan, *, as_json: bool) -> None:
    """What a plan begins, why, and where each partition starts."""
    if as_json:
        print_json(plan.shown())
        return
    for line in plan.summary():
        out().print(line, markup=False)
    rows = [
        (name, partition, offset, time_text(plan.start_times.get(name, {}).get(partition)))
        for name, of in sorted(plan.start.items())
        for partition, offset in sorted(of.items())
    ]
    print_table(["input", "partition", "from offset", "time there"], rows)
    out().print(f"{plan.estimate.records:,} records to read; plan {plan.id}")


def print_diff(diff: JobDiff, *, as_json: bool) -> None:
    """Say what would change."""
    if as_json:
        print_json(diff)
        return
    out().print(f"{diff.job}: generation {diff.live} serves" + ("" if diff.changes else "; nothing changes"))
    rows = [(c.what, _text(c.now), _text(c.wanted), ", ".join(c.allows)) for c in diff.changes]
    if rows:
        print_table(["changes", "now", "wanted", "ways"], rows)
    for way in diff.ways:
        out().print(f"{way.way}: " + ("" if way.open else "refused: ") + "; ".join(way.why), markup=False)


def _text(value: object) -> str:
    """A value of a change in one cell."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {said}" for name, said in value.items())
    return "none" if value is None else str(value)


def status_of(each: GenerationView) -> str:
    """The status, and what a person waits for who sees it."""
    if each.status != "running" or each.stage == "build":
        return each.status
    return "running, Spark starts" if each.driver else "running, no driver now"


def _place(view: JobView, each: GenerationView) -> str:
    if each.number == view.live:
        return "serves"
    return "caught up" if each.caught_up else ""


def left_of(each: GenerationView) -> str:
    """How long until it has come to the ends."""
    if each.status != "running":
        return ""
    if each.never:
        return "never, at this rate"
    return "?" if each.seconds_left is None else duration_text(round(each.seconds_left * 1000))


def pace_of(each: GenerationView) -> str:
    """How many records it reads in a second."""
    return "" if each.over else f"{each.records_per_s or 0:,.0f}"
