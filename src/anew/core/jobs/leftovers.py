"""What other code leaves behind that goes over the same records into the same output (rule R26)."""

from __future__ import annotations

from anew.core.jobs.code import JobCode, Shape


def why_code_leaves(before: JobCode, after: JobCode) -> str | None:
    """As `why_left_over`, of two codes: the same code writes again all that it wrote, whatever it keeps."""
    return None if after.is_like(before) else why_left_over(before.shape, after.shape)


def why_left_over(before: Shape | None, after: Shape | None) -> str | None:
    """Why some of what code wrote may stay when other code goes over the same records; None: all is written again.

    All is written again where each record that is read gives a row under the record's own key, at the record's own
    time, and where what was written before has no other keys and times than these. A row that was not written before,
    because the code of before left it out, is no leftover.

    Args:
        before: What the code of before keeps of each record; None: it was not tried.
        after: Likewise of the other code.
    """
    if after is None:
        return "nobody has looked what the function keeps of each record: it was not tried (leave out --no-trial)"
    if before is None:
        return "nobody has looked what the live generation's function keeps of each record: it was not tried"
    if not after.rows:
        return "the function may leave records out, or give other rows for them"
    if not (before.key and after.key):
        whose = "the function" if before.key else "the live generation's function"
        return f"{whose} gives rows other keys than their records have"
    if not (before.time and after.time):
        whose = "the function" if before.time else "the live generation's function"
        return f"{whose} gives rows other times than their records have"
    return None
