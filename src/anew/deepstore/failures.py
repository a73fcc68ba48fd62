"""What every deep store refuses and reports in the same words."""

from __future__ import annotations

from anew.core.errors import Failed, Refused


def path_taken(path: str) -> Refused:
    """The refusal to overwrite."""
    return Refused(
        "path_taken",
        "the deep store holds something else under this path",
        found=path,
        expected="a path that nobody has written to",
        hint="nothing is ever overwritten: take a fresh path",
    )


def file_missing(path: str) -> Failed:
    """What should exist does not."""
    return Failed("file_missing", "a file is missing from the deep store", found=path, expected="a file")


def check_sum(path: str, found: str, expected: str) -> None:
    """Raise unless two checksums are the same.

    Raises:
        Failed: ``checksum_mismatch``.
    """
    if found != expected:
        raise Failed(
            "checksum_mismatch",
            f"the file {path} is not the one that was written",
            found=found,
            expected=expected,
            hint="the file is damaged: rebuild the version; of a table: anew table repair NAME",
        )
