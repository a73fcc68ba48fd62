"""Where in a deep store what belongs to jobs lies."""

from __future__ import annotations

CODE_FOLDER = "jobs/code"
"""Archives of code, each under its own hash."""

PLAN_SECONDS = 86_400
"""For so long a plan can be run: the archive of its code is kept, though nothing names it yet."""


def folder_of(job_uid: str, generation: int) -> str:
    """What a generation owns: its checkpoint."""
    return f"jobs/{job_uid}/g{generation}"
