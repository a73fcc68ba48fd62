"""All parts in one process, on virtual time, with seeded faults: real code, replaced clocks, network and disks.

``python -m tests.simulation`` runs histories; see `tests.simulation.history` for what happens in one and
`tests.simulation.invariants` for what must hold in all of them.
"""
