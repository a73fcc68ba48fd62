"""Clocks, faults, strategies and contract suites for tests; never imported by the rest."""
