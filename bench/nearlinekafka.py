"""Nearline writes through a real broker: what `nearline` and `freshness` measure on the embedded log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench import freshness, nearline
from bench.brokers import check_brokers, running_broker
from bench.measuring import Bench, Claim, Measured, Repeats
from bench.synthetic import SEED

_RECORDS_PER_WRITE = 40
"""So many records are applied per write that is made in a second: 400,000 records, and 10,000 writes/s."""


def run(folder: Path, sizes: Sequence[int], repeats: Repeats) -> list[Measured]:
    """Measure with so many records in the log, and at a rate of writes that goes with them."""
    with running_broker(folder) as log:
        applied = nearline.run(folder, sizes, repeats, log)
        rates = [size // _RECORDS_PER_WRITE for size in sizes]
        fresh = freshness.run(folder, rates, repeats, log)
    return [
        Measured(of_all.size, of_all.seconds, of_each.values, {**of_all.figures, **of_each.figures})
        for of_all, of_each in zip(applied, fresh, strict=True)
    ]


BENCHES = (
    Bench(
        "nearline-kafka",
        "through a real broker: produced → applied; acknowledged → readable at a fortieth as many writes/s",
        "records",
        (100_000, 200_000, 400_000),
        (1_000,),
        (
            Claim("records/s applied", lambda found: found[-1].rate("applied"), least=150_000),
            Claim(freshness.P99, lambda found: found[-1].values[freshness.P99], most=250.0),
        ),
        run,
        SEED,
        check_brokers,
    ),
)
