"""What Spark says of executors that cannot run our tasks is told apart from what tasks say."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from anew.spark.failures import UnfitExecutor, is_of_machines, reason_of

_TASK = """An error occurred while calling o75.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
Traceback (most recent call last):
  File "worker.py", line 1
{line}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:765)
"""


@pytest.mark.parametrize(
    ("line", "code", "found"),
    [
        ("ModuleNotFoundError: No module named 'anew'", "package_missing_on_executors", "No module named 'anew'"),
        ("ModuleNotFoundError: No module named 'xxhash'", "package_missing_on_executors", "No module named 'xxhash'"),
        (
            "ModuleNotFoundError: No module named 'anew.spark.stores.shuffle'",
            "package_differs_on_executors",
            "No module named 'anew.spark.stores.shuffle'",
        ),
        (
            "AttributeError: Can't get attribute 'Sights' on <module 'anew.spark.executors' from '/opt/a.py'>",
            "package_differs_on_executors",
            "Can't get attribute 'Sights' on <module 'anew.spark.executors' from '/opt/a.py'>",
        ),
        (
            "ImportError: cannot import name 'cut' from 'anew.core.blocks' (/opt/anew/core/blocks.py)",
            "package_differs_on_executors",
            "cannot import name 'cut' from 'anew.core.blocks' (/opt/anew/core/blocks.py)",
        ),
        (
            "pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker is 3.12",
            "python_differs_on_executors",
            "Python in worker is 3.12",
        ),
        (
            'Caused by: java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory',
            "python_missing_on_executors",
            "/opt/python",
        ),
        ("anew.core.errors.Failed: rows were lost; found: 1", "build_failed", "rows were lost; found: 1"),
        ("AttributeError: 'NoneType' object has no attribute 'anew'", "build_failed", None),
        ("ValueError: anew cannot import name", "build_failed", "anew cannot import name"),
    ],
)
def test_each_way_in_which_an_executor_falls_short_has_its_code(line: str, code: str, found: str | None) -> None:
    """The code names what is to be done; whatever else a task says stays a failed build with its own words."""
    with capture_logs() as logged:
        failed = reason_of(Exception(_TASK.format(line=line)))
    assert failed.code == code
    # What has words of its own needs no stack beside them; the rest is nowhere else.
    assert [line in str(event["text"]) for event in logged] == ([True] if code == "build_failed" else [])
    if found is not None:
        assert failed.found == found


@pytest.mark.case("streams:N10")
@pytest.mark.parametrize(
    ("line", "is_theirs"),
    [
        ("ValueError: this flight was cancelled: CANCELLED", False),
        ("ValueError: no MemoryError, no FetchFailed, and no ExecutorLost are seen here", False),
        ("Caused by: java.lang.OutOfMemoryError: Java heap space", True),
        ("MemoryError", True),
        ("Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", True),
        ("[SPARK_JOB_CANCELLED] Job 3 cancelled as part of cancellation of all jobs. SQLSTATE: XXKDA", True),
        ("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", True),
        ("FetchFailed(BlockManagerId(1, 127.0.0.1, 41, None), shuffleId=0, mapIndex=1, mapId=1, reduceId=0", True),
        ("OSError: [Errno 28] No space left on device", True),
    ],
)
def test_what_machines_lack_is_no_record_s_fault(line: str, *, is_theirs: bool) -> None:
    """By what Spark says of it, and not by words that a record may have as well."""
    error = Exception(_TASK.format(line=line))
    with capture_logs():
        failed = reason_of(error)
    failed.__cause__ = error
    assert is_of_machines(failed) == is_theirs


def test_what_a_task_says_of_its_executor_arrives_whole() -> None:
    """An error that crosses as text is the same error on the driver."""
    told = UnfitExecutor("package_differs_on_executors", "another build", "build 1 {here}", "build 2", 'say "so"')
    failed = reason_of(Exception(_TASK.format(line=f"anew.spark.failures.UnfitExecutor: {told}")))
    assert (failed.code, failed.message, failed.found, failed.expected, failed.hint) == (
        "package_differs_on_executors",
        "another build",
        "build 1 {here}",
        "build 2",
        'say "so"',
    )
