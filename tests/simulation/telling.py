"""What a process says of itself while its calls fail."""

from __future__ import annotations

from tests.simulation.network import Foul
from tests.simulation.parts import Machines
from tests.simulation.world import Process

_FOUL_MS, _FOUL_LEAST = 4_000.0, 2


def untold(machines: Machines, process: Process, foul: Foul) -> str | None:
    """What kept a process's loops from their work until just now and is not told by it; None when it is."""
    now_ms, raised = machines.world.now_ms, foul.raised_ms
    fresh = [at_ms for at_ms in raised if at_ms > now_ms - _FOUL_MS]
    if process.dead or process.stopped_until_ms or len(fresh) < _FOUL_LEAST or now_ms - raised[0] < _FOUL_MS:
        return None
    controller, node = machines.controllers.get(process.name), machines.nodes.get(process.name)
    told: list[object] = []
    if controller is not None:
        told += controller.context.loops.troubles()
    if node is not None:
        report = node.engine.report()
        told += [*report.loops, *report.faults, *(r.error for r in report.replicas if r.error is not None)]
    return None if told else f"{process.name}: {foul.new()!r} at {foul.what}, and it says nothing"
