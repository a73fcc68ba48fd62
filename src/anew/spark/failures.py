"""What a failed Spark job says, in this project's words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from anew.core.errors import AnewError, Failed

_LOGGED_CHARACTERS = 20_000
_log = structlog.get_logger("anew.spark")

PACKAGE_HINT = (
    "a session that anew makes sends the package itself; to another one add the zip that "
    "`python -m anew.spark.package anew.zip` writes: --conf spark.submit.pyFiles=anew.zip. What it imports must be "
    "installed, or packed: see `On a Spark cluster` in docs/operations.md"
)
_PYTHON_HINT = (
    "name one that is there: --conf spark.pyspark.python=PATH, if need be of an environment that is sent along with "
    "--conf spark.archives=FILE.tar.gz#env (then ./env/bin/python)"
)
_PYTHON_ERROR = re.compile(
    r"^(?:[\w.]+\.)?(?P<kind>\w*(?:Error|Exception|Failed|Refused|Unreachable|Request)): (?P<text>.+)$", re.M
)
_FILE = re.compile(r"while reading file (?P<file>\S+?)\.?\s")
_CAUSED_BY = re.compile(r"^Caused by: (?P<text>.+)$", re.M)
_UNFIT = re.compile(r"(?:UnfitExecutor|TaskFailed): (?P<json>\{.*\})$", re.M)
_OF_MACHINES = re.compile(
    r"\bjava\.lang\.OutOfMemoryError\b|^MemoryError\b|Python worker exited unexpectedly|\bExecutorLostFailure\b"
    r"|\bFetchFailed\(|No space left on device|\[SPARK_JOB_CANCELLED\]|SparkContext was shut down",
    re.MULTILINE,
)
"""How Spark says that a job failed for want of something that machines have, or because somebody ended it.

The same text has what a function says of a record, a flight that was cancelled, for example.
"""
_NO_PYTHON = re.compile(r'Cannot run program "(?P<python>[^"]+)"')
_OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\] (?P<text>.+)")
_NO_MODULE = re.compile(r"ModuleNotFoundError: (?P<text>No module named '(?P<module>[\w.]+)'.*)")
_OTHER_CODE = re.compile(
    r"(?P<text>(?:Can't get attribute '\w+' on <module|cannot import name '\w+' from|module) '?anew\b.*)"
)


class UnfitExecutor(Exception):
    """An executor that cannot do its part. Crosses to the driver as text; `reason_of` makes it a `Failed` again."""

    def __init__(self, code: str, message: str, found: str, expected: str, hint: str) -> None:
        """See `anew.core.errors.AnewError`."""
        parts = {"code": code, "message": message, "found": found, "expected": expected, "hint": hint}
        super().__init__(json.dumps(parts))
        self.parts = parts


class TaskFailed(Exception):
    """What a task of ours raised. Crosses to the driver as text; `reason_of` makes a `Failed` of it, part by part."""

    def __init__(self, error: AnewError) -> None:
        """Say what the error says."""
        super().__init__(json.dumps(error.to_json(), default=str))

    def __reduce__(self) -> tuple[object, ...]:
        return _failed_again, (self.args[0],)


def _failed_again(text: str) -> TaskFailed:
    parts = json.loads(text)
    code, message = parts.pop("code"), parts.pop("message")
    return TaskFailed(AnewError(code, message, **parts))


@contextmanager
def told_to_driver() -> Iterator[None]:
    """Inside a task: let the driver know the error as it is, with its code and all that it names."""
    try:
        yield
    except AnewError as error:
        raise TaskFailed(error) from error


def reason_of(error: BaseException, *, is_logged: bool = True) -> Failed:
    """Why a job failed: an executor that lacks something, else the Python error of the task or the JVM's last cause.

    Args:
        error: What Spark raised.
        is_logged: Whether to log whole what nobody foresaw: Spark's own loggers are silent about it
            (`anew.spark.session`).
    """
    text = f"{type(error).__name__}: {error}"
    unfit = unfitness_of(text)
    if unfit is not None:
        return unfit
    if is_logged:
        _log.error("spark_job_failed", text=text[:_LOGGED_CHARACTERS])
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
        hint="what serves goes on serving; see spark_job_failed in the driver's log",
    )


def is_of_machines(error: BaseException) -> bool:
    """Whether a job failed for want of memory, disk or executors, or was cancelled: not by what it was given.

    Args:
        error: As `reason_of` made it, with Spark's error as its cause.
    """
    return _OF_MACHINES.search(f"{error}\n{error.__cause__}") is not None


def _failed(told: str) -> Failed:
    parts = json.loads(told)
    return Failed(parts["code"], parts["message"], found=parts["found"], expected=parts["expected"], hint=parts["hint"])


@dataclass(frozen=True, slots=True)
class _Lack:
    """One way in which executors fall short, and how Spark says so."""

    sign: re.Pattern[str]
    code: str
    message: str
    found: str
    expected: str
    hint: str


_LACKS = (
    _Lack(
        _NO_PYTHON,
        "python_missing_on_executors",
        "an executor does not have the Python that tasks run in",
        "python",
        "that program on each worker",
        _PYTHON_HINT,
    ),
    _Lack(
        _OTHER_PYTHON,
        "python_differs_on_executors",
        "executors run another Python than the driver",
        "text",
        "the same minor version on both sides",
        _PYTHON_HINT,
    ),
    _Lack(
        _NO_MODULE,
        "package_missing_on_executors",
        "an executor's Python lacks a package",
        "text",
        "anew, and what it imports",
        PACKAGE_HINT,
    ),
    _Lack(
        _OTHER_CODE,
        "package_differs_on_executors",
        "an executor has another build of anew than the driver",
        "text",
        "the driver's own build",
        PACKAGE_HINT,
    ),
)


def unfitness_of(text: str) -> Failed | None:
    """What executors lack, if it is that by which a job failed.

    Args:
        text: What Spark says of the job's failure.
    """
    told = _UNFIT.search(text)
    if told is not None:
        return _failed(told["json"])
    for lack in _LACKS:
        sign = lack.sign.search(text)
        if sign is None:
            continue
        if lack.sign is _NO_MODULE and sign["module"].startswith("anew."):
            # The package is there, a part of it is not.
            lack = _LACKS[-1]
        found = sign.groupdict().get(lack.found) or sign["text"]
        return Failed(lack.code, lack.message, found=found[:2_000], expected=lack.expected, hint=lack.hint)
    return None
