"""How plans of generations are printed."""

from __future__ import annotations

from anew.cli.jobs.checkpoints import time_text
from anew.cli.output import out, print_json, print_table
from anew.core.jobs.plan import JobPlan


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
