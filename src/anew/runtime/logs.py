"""Structured logs: JSON lines of events for daemons, to the home; short lines to stderr for commands."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import structlog


def log_to_file(path: Path, process: str, level: str) -> None:
    """Write this process's events to a file, one JSON object per line."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    sink: Any = _Sink(path)
    _configure(structlog.processors.JSONRenderer(), structlog.WriteLoggerFactory(sink), level, process)
    handler = logging.StreamHandler(sink)
    handler.setFormatter(logging.Formatter('{"event": "library", "logger": "%(name)s", "message": "%(message)s"}'))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


class _Sink:
    """A file of lines that never fails who writes: what finds no room is lost, and how much that was is said later.

    The thread that has something to say about a full disk is often the one that must outlive it.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._lost = 0

    def write(self, text: str) -> int:
        """Write a line, or lose it."""
        lost = b'\n{"event": "log_lines_lost", "count": %d}\n' % self._lost if self._lost else b""
        line = lost + text.encode()
        try:
            written = self._file.write(line)
        except OSError:
            written = 0
        self._lost = 0 if written == len(line) else self._lost + 1
        return len(text)

    def flush(self) -> None:
        """Nothing waits here."""


def log_to_stderr(level: str) -> None:
    """Write events to stderr, where commands put everything that is not their answer."""
    renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    _configure(renderer, structlog.PrintLoggerFactory(sys.stderr), level, "anew")


def _configure(renderer: Any, factory: Any, level: str, process: str) -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=factory,
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(process=process)
