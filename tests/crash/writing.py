"""A writer as a process of its own: ``python -m tests.crash.writing HOME STORE PREFIX``.

Writes the changes of `tests.cluster.account.change_of` in order, and prints how many are acknowledged after each batch.
"""

from __future__ import annotations

import itertools
import sys

from anew.runtime.connect import connect
from tests.cluster.account import change_of, write_changes

BATCH = 50


def main(home: str, store: str, prefix: str) -> None:
    """Write until killed."""
    with connect(home=home) as cluster, cluster.store(store).writer() as writer:
        for count in itertools.count(0, BATCH):
            write_changes(writer, dict(change_of(prefix, number) for number in range(count, count + BATCH)))
            writer.flush()
            print(count + BATCH, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
