"""Which node holds which replica: balanced, with as little movement as that allows. A pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Assignment = dict[int, tuple[str, ...]]


def assign(
    partition_count: int, replica_count: int, nodes: Sequence[str], held: Mapping[int, Sequence[str]]
) -> Assignment:
    """The nodes of each partition, shape {partition: (node, …)}.

    No node holds a partition twice; with fewer nodes than replicas each partition gets all nodes. What ``held`` says
    stays where no node would carry more than its share (the ceiling of an even split); the rest goes to the node with
    the least, the first by name among equals.
    """
    ordered = sorted(set(nodes))
    wanted = min(replica_count, len(ordered))
    if wanted == 0:
        return dict.fromkeys(range(partition_count), ())
    share = -(-partition_count * wanted // len(ordered))
    load = dict.fromkeys(ordered, 0)
    chosen: dict[int, list[str]] = {}
    for partition in range(partition_count):
        kept = [node for node in held.get(partition, ()) if node in load and load[node] < share][:wanted]
        for node in kept:
            load[node] += 1
        chosen[partition] = kept
    for kept in chosen.values():
        while len(kept) < wanted:
            free = [node for node in ordered if node not in kept]
            node = min(free, key=lambda candidate: (load[candidate], candidate))
            kept.append(node)
            load[node] += 1
    return {partition: tuple(kept) for partition, kept in chosen.items()}
