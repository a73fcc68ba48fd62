"""Benchmarks: each compares both sides in one run, on seeded records."""
