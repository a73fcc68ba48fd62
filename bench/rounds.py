"""What a round of the controller costs over very many stores: one in which nothing changed, and one version's swap.

Of a hundred stores one takes nearline writes; each has four partitions, which nodes report as they would.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from anew.api.location import LogLocation
from anew.api.models import NodeReport
from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.catalog.change import Change, Operation, PutRebuild, PutStore
from anew.catalog.database import DatabaseCatalog
from anew.controller.engine.context import Context, Fabric
from anew.controller.nodes.reports import take_report
from anew.controller.reconcile import Reconciler
from anew.controller.stores.feeds import spec_of
from anew.controller.subjects import SUBJECTS
from anew.core.feed import PositionMap
from anew.core.rebuild import Stage
from anew.core.stores.store import ManifestRef, Store, Version, VersionStatus
from anew.deepstore.open import open_deep_store
from anew.log.embedded import EmbeddedLog
from anew.testing.builders import FABRIC, a_config, a_feed, a_rebuild, a_store, a_version
from anew.testing.clock import NOON_MS, ManualClock
from bench.measuring import Bench, Claim, Measured, Repeats
from bench.synthetic import SEED

_NODES = 3
_PARTITIONS = 4
_ONE_IN = 100
_PUTS_PER_COMMIT = 500
_MOST_ROUNDS = 6
"""As many in a row as the controller's process takes while something changes."""
_MANIFEST = ManifestRef(path="m", checksum="0" * 64, files=4, rows=4_000, tombstones=0, bytes=400_000, fingerprint=1)


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with so many stores."""
    return [_measure(folder / str(size), size, repeats) for size in sizes]


def _measure(folder: Path, count: int, repeats: Repeats) -> Measured:
    folder.mkdir()
    clock = ManualClock()
    context = _context(folder, clock)
    names = _fill(context, count)
    _report(context)
    reconciler = Reconciler(context, clock.seconds)
    still, swap = [], []
    numbers = itertools.count()
    # The first rounds write down what a lost catalog is made again from, of every store.
    context.watch.repeat(reconciler.round, _MOST_ROUNDS)
    for number in range(repeats.warm_ups + repeats.repetitions):
        clock.advance(1_000)
        before = context.catalog.revision()
        still.append(_seconds(reconciler.round))
        if context.catalog.revision() != before:
            raise AssertionError("a round in which nothing changed changes nothing")
        name = names[number * 7 % count]
        _seal_one(context, name, f"rebuild-{next(numbers)}")
        _report(context)
        began = time.perf_counter()
        context.watch.repeat(reconciler.hurry, _MOST_ROUNDS)
        swap.append(time.perf_counter() - began)
        if _current(context, name) != _sealed_last(context, name):
            raise AssertionError("what every node has loaded is current")
        context.watch.repeat(reconciler.round, _MOST_ROUNDS)
    context.catalog.close()
    shutil.rmtree(folder)
    measured = slice(repeats.warm_ups, None)
    seconds = {"a round in which nothing changed": still[measured], "from readiness to the swap": swap[measured]}
    return Measured(count, seconds, figures={"nodes": _NODES, "partitions": _PARTITIONS * count})


def _seconds(act: Callable[[], None]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _current(context: Context, name: str) -> int:
    store = context.catalog.store(name)
    return 0 if store is None else store.current[FABRIC]


def _sealed_last(context: Context, name: str) -> int:
    """The version that was sealed last, which is to become current."""
    store = context.catalog.store(name)
    return 0 if store is None else store.versions[-1].number


def _context(folder: Path, clock: ManualClock) -> Context:
    log = EmbeddedLog(folder / "log", clock=clock, durable=False)
    fabric = Fabric(FABRIC, log, LogLocation(kind="embedded", address="log"), open_deep_store(str(folder / "deep")))
    ids = itertools.count()
    catalog = DatabaseCatalog(f"sqlite:///{folder}/catalog.db")
    return Context(catalog, {FABRIC: fabric}, clock, lambda: f"id-{next(ids)}", subjects=SUBJECTS)


def _fill(context: Context, count: int) -> list[str]:
    """Make the stores; returns their names."""
    stores = [_store(number) for number in range(count)]
    for first in range(0, count, _PUTS_PER_COMMIT):
        puts = tuple(PutStore(store, None) for store in stores[first : first + _PUTS_PER_COMMIT])
        context.catalog.commit(Change(Operation(f"make-{first}", NOON_MS, "bench", "create", "stores"), puts))
    for store in stores:
        for feed in store.feeds:
            context.fabrics[FABRIC].log.create_topic(spec_of(store, feed))
    return [store.name for store in stores]


def _store(number: int) -> Store:
    name, hybrid = f"store{number}", number % _ONE_IN == 0
    feeds = (a_feed(name, _PARTITIONS, open=True, moving=False),) if hybrid else ()
    config = a_config(partitions=_PARTITIONS, replicas=1, hybrid=hybrid)
    start = PositionMap({at: 0 for feed in feeds for at in feed.feed_partitions()})
    applied = {"feeds": tuple(feed.id for feed in feeds), "start": start}
    version = _version(1, VersionStatus.CURRENT, number, config=config.frozen, **applied)
    return a_store(
        name,
        uid=f"uid-{name}",
        config=config,
        feeds=feeds,
        versions=(version.model_copy(update={"path": f"stores/uid-{name}/v1/made-e1"}),),
        current={FABRIC: 1},
        next_version=2,
    )


def _version(number: int, status: VersionStatus, place: int, **changes: object) -> Version:
    nodes = dict.fromkeys(range(_PARTITIONS), (f"node-{place % _NODES}",))
    return a_version(number, status, manifest=_MANIFEST, assignment=nodes, **changes)


def _seal_one(context: Context, name: str, rebuild_id: str) -> None:
    """A version of a store is sealed: its nodes are about to load it."""
    store = context.catalog.store(name)
    if store is None:
        raise AssertionError(name)
    last = store.versions[-1]
    path = f"stores/{store.uid}/v{store.next_version}/{rebuild_id}-e1"
    made = last.model_copy(update={"number": store.next_version, "rebuild": rebuild_id, "path": path}).moved(
        (FABRIC,),
        status=VersionStatus.LOADING,
        since_ms=context.clock(),
        ready_target=None,
        swap_from=store.current[FABRIC],
    )
    after = store.model_copy(update={"versions": (*store.versions, made), "next_version": store.next_version + 1})
    rebuild = a_rebuild(
        after, rebuild_id, version=made.number, stage=Stage.LOAD, lease_until_ms=context.clock() + 10**9
    )
    operation = Operation(context.new_id(), context.clock(), "bench", "seal", name)
    context.catalog.commit(Change(operation, (PutStore(after, store.revision), PutRebuild(rebuild, None))))


def _report(context: Context) -> None:
    """Every node says that it holds what it should."""
    found: dict[str, list[ReplicaReport]] = {f"node-{number}": [] for number in range(_NODES)}
    for store in context.catalog.stores():
        for version in store.versions:
            for partition, nodes in version.fabrics[FABRIC].assignment.items():
                replica = ReplicaReport(
                    store_uid=store.uid,
                    version=version.number,
                    partition=partition,
                    state=ReplicaState.APPLYING,
                    store_revision=store.revision,
                    position=PositionMap({at: 0 for at in version.fabrics[FABRIC].start if at.partition == partition}),
                )
                found[nodes[0]].append(replica)
    for node, replicas in found.items():
        url = f"http://{node}:1"
        report = NodeReport(node=node, fabric=FABRIC, url=url, started_at_ms=NOON_MS, replicas=tuple(replicas))
        take_report(context, report)


BENCHES = (
    Bench(
        "rounds",
        "a round of the controller over many stores, and the swap of one version",
        "stores",
        (2_500, 5_000, 10_000),
        (100, 200),
        (
            Claim(
                "seconds of a round over 10,000 stores in which nothing changed",
                lambda found: found[-1].median("a round in which nothing changed"),
                most=1.0,
            ),
            Claim(
                "seconds from readiness to the swap's commit",
                lambda found: found[-1].median("from readiness to the swap"),
                most=1.0,
            ),
        ),
        run,
        SEED,
    ),
)
