"""Seeded histories of stream jobs on real Spark: drivers are processes that die, readers read all the time.

``python -m tests.crash.jobs`` runs them; `tests.crash.jobs.drawing` says what can happen in one, and
`tests.crash.jobs.oracle` what must hold. Histories run beside one another in one cluster.
"""
