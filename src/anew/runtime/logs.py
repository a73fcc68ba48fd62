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
    sink = path.open("a", encoding="utf-8", buffering=1)
    _configure(structlog.processors.JSONRenderer(), structlog.WriteLoggerFactory(sink), level, process)
    handler = logging.StreamHandler(sink)
    handler.setFormatter(logging.Formatter('{"event": "library", "logger": "%(name)s", "message": "%(message)s"}'))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


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
