"""What commands print: one document for programs, a few lines for people."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from anew.api.rebuilds import FailedSegment, RefreshView, StoreLedger
from anew.cli.display import TerminalObserver, failed_lines, ledger_line, measure_line
from anew.cli.output import print_error, print_json, print_line, print_table
from anew.cli.running import print_table_outcome
from anew.cli.stores.making import print_plan
from anew.core.errors import Refused
from anew.core.plan import Change, Estimate
from anew.core.rebuild import Progress, RebuildStatus, Stage
from anew.core.stores.plan import PushInput, Source
from anew.core.tables.plan import TableRebuildKind
from anew.testing.answers import a_rebuild_view, a_table_rebuild_view
from anew.testing.builders import a_plan, a_rebuild, a_store
from anew.testing.clock import NOON_MS
from anew.testing.table_builders import a_table, a_table_rebuild

_ERROR = Refused(
    "writes_disabled",
    "flights[x] takes no writes",
    found=["writes = false", "[bold]"],
    expected="writes = true",
    hint="anew store update flights --set writes=true",
)


def test_an_error_for_programs_is_one_document_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """Under ``--json`` an error has exactly the five fields of the face, and stderr is silent."""
    print_error(_ERROR, as_json=True)
    shown = capsys.readouterr()
    assert (json.loads(shown.out), shown.err) == ({"error": _ERROR.to_json()}, "")
    assert list(_ERROR.to_json()) == ["code", "message", "found", "expected", "hint"]


def test_an_error_for_people_is_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Message and code, then what was found, expected and to do; lists line by line, brackets as they are."""
    print_error(_ERROR, as_json=False)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "error: flights[x] takes no writes (writes_disabled)",
        "  found: ",
        "    writes = false",
        "    [bold]",
        "  expected: writes = true",
        "  hint: anew store update flights --set writes=true",
    ]


def test_an_error_for_people_leaves_out_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    """Parts that are None are not shown; zero, false and an empty list are."""
    print_error(Refused("a_code", "no", found=[], expected=0), as_json=False)
    assert capsys.readouterr().err.splitlines() == ["error: no (a_code)", "  found: none", "  expected: 0"]


@pytest.mark.parametrize(
    ("found", "lines", "text"),
    [
        ({2: "backup", "dc-0": ["a", "b"]}, ["", "    2: backup", "    dc-0: a, b"], "2: backup, dc-0: a, b"),
        ({}, ["none"], "none"),
        (("a", ("uid", 3)), ["", "    a", "    uid, 3"], "a, uid, 3"),
        ({"the only": {}}, ["", "    the only: none"], "the only: none"),
        ("", [""], ""),
    ],
)
def test_what_was_found_is_for_people_not_for_python(
    found: object, lines: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mappings are entries with their keys, sequences their entries, on lines of their own or in one."""
    error = Refused("a_code", "no", found=found)
    print_error(error, as_json=False)
    assert capsys.readouterr().err.splitlines() == ["error: no (a_code)", f"  found: {lines[0]}", *lines[1:]]
    assert str(error) == f"no; found: {text}"


def test_documents_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Text with line ends stays within its line, and values that JSON lacks become text."""
    print_json({"a": "x\ny", "b": b"z"})
    print_line([1, None, True])
    first, second = capsys.readouterr().out.splitlines()
    assert json.loads(first)["a"] == "x\ny"
    assert json.loads(second) == [1, None, True]


def test_a_table_shows_numbers_to_the_right(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of numbers are aligned at their last digit, None is empty, and no rows are no error."""
    monkeypatch.setenv("COLUMNS", "80")
    print_table(["name", "rows"], [("a", 5), ("long", 1_000), (None, 20)])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["name  rows", "a        5", "long  1000", "        20"]
    print_table(["name"], [])
    assert capsys.readouterr().out.strip() == "name"


# -- the display of a rebuild ----------------------------------------------------------------------------------------


def _elsewhere() -> tuple[io.StringIO, TerminalObserver]:
    """An observer that writes to something that is no terminal."""
    written = io.StringIO()
    return written, TerminalObserver(Console(file=written, width=200, force_terminal=False, highlight=False))


def test_progress_is_told_in_counts_and_bytes() -> None:
    """Where it is known how many bytes there are to read, as of segments, that is told as well."""
    written, observer = _elsewhere()
    with observer:
        for done in range(3):
            measure = Progress(done=done, total=2, unit="segments", bytes=done * 2_060_000, total_bytes=4_100_000)
            observer.progress(Stage.BUILD, measure)
    lines = [line.split("]")[-1].strip() for line in written.getvalue().splitlines()]
    assert lines == ["0/2 segments, 0.0/4.1 MB", "1/2 segments, 2.1/4.1 MB", "2/2 segments, 4.1/4.1 MB"]


def test_what_nobody_has_measured_is_said_by_nothing() -> None:
    """A stage of which no measure is known has no line for it."""
    assert measure_line(Progress()) == ""
    assert measure_line(Progress(done=3, total=8, unit="replicas loaded")) == "3/8 replicas loaded"


def test_elsewhere_there_is_one_line_per_change() -> None:
    """Without a terminal each stage and each new measure is one line without control characters; repeats are none."""
    written, observer = _elsewhere()
    with observer:
        observer.began(a_rebuild(a_store(), "r-1", version=8))
        observer.stage(Stage.BUILD)
        for done in (1, 1, 2, 2, 2):
            observer.progress(Stage.BUILD, Progress(done=done, total=4))
        observer.stage(Stage.LOAD)
        observer.progress(Stage.LOAD, Progress(done=1, total=4, unit="replicas loaded"))
        observer.stage(Stage.SWAP)
        observer.progress(Stage.SWAP, Progress(done=4, total=4, unit="replicas loaded"))
        observer.stage(Stage.DONE)
        observer.ended(a_rebuild_view(a_rebuild(a_store())))
    text = written.getvalue()
    assert "\x1b" not in text
    assert "\r" not in text
    assert [line.split("]")[-1].strip() for line in text.splitlines()] == [
        "rebuild r-1 makes version 8",
        "build: read, merge, write",
        "1/4 tasks",
        "2/4 tasks",
        "load: nodes ingest and catch up",
        "1/4 replicas loaded",
        "swap: put into service",
        "done",
    ]


def test_a_deferred_swap_is_not_told_as_one_that_is_done() -> None:
    """Whether the plan says so, or whoever follows a rebuild that began before."""
    written, observer = _elsewhere()
    plan = a_plan(a_store(), 8, source=Source(version=7, topic="flights_v7"))
    observer.planned(plan.model_copy(update={"target": plan.target.model_copy(update={"defer_swap": True})}))
    observer.stage(Stage.SWAP)
    follower = TerminalObserver(Console(file=written, force_terminal=False), defers=True)
    follower.stage(Stage.SWAP)
    lines = [line.split("]")[-1].strip() for line in written.getvalue().splitlines() if "swap" in line]
    assert lines == ["swap: deferred, as it was asked for"] * 2


@pytest.mark.parametrize("stage", list(Stage))
def test_every_stage_has_its_words(stage: Stage) -> None:
    """No stage is unknown to the display."""
    written, observer = _elsewhere()
    observer.stage(stage)
    assert stage.value in written.getvalue()


def test_a_plan_is_shown_with_its_reasons() -> None:
    """A repush names its source and how many records are expected; a push of files does not guess their number."""
    written, observer = _elsewhere()
    repush = a_plan(
        a_store(),
        8,
        source=Source(version=7, topic="flights_v7"),
        estimate=Estimate(records=300, bytes=9_000),
        changes=(Change(setting="partitions", now=4, wanted=8),),
        why=("partitions: 4 → 8",),
    )
    files = PushInput(paths=("/in.csv",), format="csv", key=("key",))
    push = a_plan(a_store(), 9, source=Source(input=files), estimate=Estimate(records=0, bytes=70))
    observer.planned(repush)
    observer.planned(push)
    assert written.getvalue().splitlines() == [
        f"plan {repush.id}: flights_v7 → flights_v8, about 300 records, 9000 bytes",
        "  partitions: 4 → 8",
        f"plan {push.id}: files → flights_v9, 70 bytes",
    ]


@pytest.mark.parametrize(
    ("floor_ms", "shown"), [(0, "nothing"), (NOON_MS - 1_800_000, "what was written before 2025-06-15T14:36:40Z")]
)
def test_a_dry_run_shows_until_when_records_expire(
    capsys: pytest.CaptureFixture[str], floor_ms: int, shown: str
) -> None:
    """What expires, and which tombstones go, is said with a time that people read."""
    plan = a_plan(a_store(), 8)
    floors = {"ttl_floor_ms": floor_ms, "tombstone_floor_ms": floor_ms}
    print_plan(plan.model_copy(update={"target": plan.target.model_copy(update=floors)}), as_json=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"expires {shown}" in lines
    assert [line for line in lines if line.startswith("drops ") and line.endswith(shown.rpartition(" ")[2])]


def test_a_terminal_gets_a_live_display_that_ends() -> None:
    """On a terminal the display is live, and leaving it gives the cursor back, after an error too."""
    written = io.StringIO()
    observer = TerminalObserver(Console(file=written, force_terminal=True, width=80))
    with pytest.raises(ZeroDivisionError):
        _fail_within(observer)
    hidden, shown = (written.getvalue().rfind(f"\x1b[?25{letter}") for letter in "lh")
    assert 0 <= hidden < shown


def _fail_within(observer: TerminalObserver) -> None:
    with observer:
        observer.stage(Stage.BUILD)
        observer.progress(Stage.BUILD, Progress(done=1, total=0))
        observer.progress(Stage.BUILD, Progress(done=1, total=4))
        raise ZeroDivisionError


def _refresh(**changes: Any) -> RefreshView:
    """The ``refresh`` shape of a rebuild that is done with nothing."""
    return a_table_rebuild_view(a_table_rebuild(a_table())).refresh.model_copy(update=changes)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("refresh", "2 refreshed, 1 stamped, 0 skipped, 0 failed, 0 drift"),
        ("table_load", "2 loaded, 1 unchanged"),
        ("table_repair", "2 repaired, 0 skipped, 0 failed"),
    ],
)
def test_each_kind_says_in_its_own_words_what_became_of_segments(
    capsys: pytest.CaptureFixture[str], kind: str, shown: str
) -> None:
    """A load loads, a repair repairs, and only a refresh refreshes; what was removed is told where something was."""
    refresh = _refresh(refreshed=("a", "b"), stamped=("c",))
    made = {"kind": TableRebuildKind(kind), "status": RebuildStatus.SUCCEEDED, "refresh": refresh}
    view = a_table_rebuild_view(a_table_rebuild(a_table()), **made)
    print_table_outcome(view)
    assert capsys.readouterr().out.splitlines()[0] == f"succeeded: {shown}"
    print_table_outcome(view.model_copy(update={"refresh": refresh.model_copy(update={"removed": ("d",)})}))
    assert ("1 removed" in capsys.readouterr().out) is (kind == "table_load")


def test_segments_that_failed_are_named() -> None:
    """The first twenty with their reasons, the others by their number."""
    failed = tuple(FailedSegment(segment=f"p_{number}", error="column city, row 0: 'x'") for number in range(23))
    lines = failed_lines(_refresh(failed=failed))
    assert lines[0] == "p_0: column city, row 0: 'x'"
    assert (len(lines), lines[-1]) == (21, "and 3 more: --json names them all")
    assert len(failed_lines(_refresh(failed=failed[:20]))) == 20
    assert failed_lines(_refresh()) == []


def test_the_ledger_is_one_line() -> None:
    """All entries in the order of the face; a rebuild without a ledger says so."""
    ledger = StoreLedger(read=9, superseded=1, deleted=2, expired=0, skipped=3, written=3, combined=0)
    view = a_rebuild_view(a_rebuild(a_store()))
    sealed = view.model_copy(update={"ledger": ledger})
    assert ledger_line(sealed) == "9 read = 1 superseded + 2 deleted + 0 expired + 3 skipped + 3 written"
    assert ledger_line(view) == "no ledger: nothing was sealed"
