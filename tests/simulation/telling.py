"""What a process says of itself while its calls fail."""

from __future__ import annotations

from collections.abc import Iterator

from anew.core.feed import FeedPartition
from tests.simulation.network import Foul
from tests.simulation.parts import Machines
from tests.simulation.world import Process

_FOUL_MS, _FOUL_LEAST = 4_000.0, 2
_TIME_TO_TELL_MS, _BETWEEN_LOOKS_MS, _FEWEST_LOOKS = 5_000.0, 1_000.0, 3


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


def yet_silent(machines: Machines, at: FeedPartition, offset: int, ms: float) -> set[str]:
    """Which replicas stand before a damaged record and say nothing, at each look over so long: they must tell of it."""
    machines.world.sleep(min(ms, _TIME_TO_TELL_MS))
    looks: list[set[tuple[int, str]]] = []
    for _ in range(int((ms - _TIME_TO_TELL_MS) // _BETWEEN_LOOKS_MS)):
        machines.world.sleep(_BETWEEN_LOOKS_MS)
        looks.append(set(_silent_before(machines, at, offset)))
    return {name for _, name in set.intersection(*looks)} if len(looks) >= _FEWEST_LOOKS else set()


def _silent_before(machines: Machines, at: FeedPartition, offset: int) -> Iterator[tuple[int, str]]:
    for part in machines.nodes.values():
        if part.process.dead or part.process.stopped_until_ms:
            continue
        report = part.engine.report()
        if report.loops or report.faults or report.unknown_schemas:
            continue
        for replica in report.replicas:
            stands = replica.position.get(at)
            if stands is not None and stands <= offset and replica.error is None:
                yield id(part), f"{part.name}: {replica.store_uid} v{replica.version} {replica.partition}"
