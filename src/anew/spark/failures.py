"""What a failed Spark job says, in this project's words."""

from __future__ import annotations

import re

from anew.core.errors import Failed

_PYTHON_ERROR = re.compile(
    r"^(?:[\w.]+\.)?(?P<kind>\w*(?:Error|Exception|Failed|Refused|Unreachable|Request)): (?P<text>.+)$", re.M
)
_FILE = re.compile(r"while reading file (?P<file>\S+?)\.?\s")
_CAUSED_BY = re.compile(r"^Caused by: (?P<text>.+)$", re.M)


def reason_of(error: BaseException) -> Failed:
    """The innermost reason of a failed job: the Python error of the task, or the last cause of the JVM's."""
    text = str(error)
    python = [match["text"] for match in _PYTHON_ERROR.finditer(text)]
    causes = [match["text"] for match in _CAUSED_BY.finditer(text)]
    lines = text.splitlines()
    found = (python or causes or lines or [type(error).__name__])[-1 if python or causes else 0]
    file = _FILE.search(text)
    if file is not None and file["file"] not in found:
        found = f"{file['file']}: {found}"
    return Failed(
        "build_failed",
        "the Spark job failed",
        found=found[:2_000],
        expected="a job that ends",
        hint="nothing serves the new version; see the driver's log",
    )
