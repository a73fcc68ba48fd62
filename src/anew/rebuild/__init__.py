"""Rebuilds: plan, run, verify, swap, roll back and reclaim."""
