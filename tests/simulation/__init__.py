"""All parts in one process, on virtual time, with seeded faults: real code, replaced clocks, network and disks.

``python -m anew.testing.simulation`` runs histories; see `anew.testing.simulation.history` for what happens in one and
`anew.testing.simulation.invariants` for what must hold in all of them.
"""
