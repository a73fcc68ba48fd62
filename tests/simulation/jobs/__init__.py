"""Stream jobs in the simulation: the product's controllers, drivers, runner, sink and nodes around a small batch loop.

``python -m tests.simulation --jobs`` runs histories; see `tests.simulation.jobs.history` for what happens in one, and
`tests.simulation.jobs.checks` for what must hold in all of them.
"""
