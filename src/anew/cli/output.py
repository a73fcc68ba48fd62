"""What a command prints: one JSON document under ``--json``, text for people otherwise, errors to stderr."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any

import orjson
import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from anew.core.errors import AnewError, shown_lines

_PIPED_COLUMNS = 200
_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON, a line for each look or event.")]


def err() -> Console:
    """The console on stderr: progress, notes and errors; made anew each time, so that a redirect is seen."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def out() -> Console:
    """The console on stdout: answers; wide where nobody looks, so that a table keeps one line for each row."""
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _PIPED_COLUMNS)


def print_json(document: Any) -> None:
    """Write the one JSON document of an answer."""
    sys.stdout.write(_text(document))
    sys.stdout.flush()


def print_line(document: Any) -> None:
    """Write one JSON line of a streaming command."""
    sys.stdout.write(_text(document))


def shape(answer: BaseModel) -> dict[str, Any]:
    """An answer as JSON has it."""
    return answer.model_dump(mode="json", by_alias=True)


def _text(document: Any) -> str:
    return orjson.dumps(
        document, default=_plain_value, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    ).decode()


def _plain_value(value: Any) -> Any:
    return shape(value) if isinstance(value, BaseModel) else str(value)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as a table; numbers to the right."""
    listed = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        numeric = bool(listed) and all(isinstance(row[index], int | float) for row in listed)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        table.add_row(*["" if cell is None else str(cell) for cell in row])
    out().print(table)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows that somebody asked for: a table on a terminal, tab-separated lines in a pipe, where programs read.

    In a pipe a tab, a line break and a backslash of a text are written as backslash escapes; null is empty.
    """
    if sys.stdout.isatty():
        print_table(columns, rows)
        return
    lines = (
        "\t".join("" if cell is None else str(cell).translate(_ESCAPED) for cell in row) for row in (columns, *rows)
    )
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def print_error(error: AnewError, *, as_json: bool) -> None:
    """Write an error: JSON on stdout under ``--json``, a few lines on stderr otherwise."""
    if as_json:
        print_json({"error": error.to_json()})
        return
    console = err()
    console.print(f"[bold red]error[/]: {_plain(error.message)} [dim]({error.code})[/]")
    for name in ("found", "expected", "hint"):
        value = getattr(error, name)
        if value is not None:
            console.print(f"  [bold]{name}[/]: {_plain(_shown(value))}")


def _shown(value: Any) -> str:
    lines = shown_lines(value)
    if isinstance(value, str | bytes) or not isinstance(value, Collection):
        return lines[0]
    return "\n    ".join(["", *lines]) if lines else "none"


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
