"""Drivers of pushes and repushes: planning, building and sealing a version."""
