"""Where in a deep store what belongs to jobs lies."""

from __future__ import annotations

CODE_FOLDER = "jobs/code"
"""Archives of code, each under its own hash."""


def folder_of(job_uid: str, generation: int) -> str:
    """What a generation owns: its checkpoint."""
    return f"jobs/{job_uid}/g{generation}"
