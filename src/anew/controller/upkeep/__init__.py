"""Upkeep: what goes after its grace, and what somebody on call pauses or collects."""
