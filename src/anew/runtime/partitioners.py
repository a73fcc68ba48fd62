"""The source of a partitioner of a user's own, found where Python finds modules and in the working directory."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from anew.core.errors import InvalidRequest
from anew.core.partitioners import check_partitioner_name, is_custom


def source_for(settings: Mapping[str, object]) -> str | None:
    """The source that goes with the settings of a request; None where they name no partitioner of one's own.

    Raises:
        InvalidRequest: ``bad_partitioner``: there is no such module, or it is not one file of Python.
    """
    name = str(settings.get("partitioner", "xxhash64"))
    check_partitioner_name(name)
    return module_source(name.partition(":")[0]) if is_custom(name) else None


def module_source(module: str) -> str:
    """The text of a module's file; nothing is run but the packages around it.

    Raises:
        InvalidRequest: ``bad_partitioner``.
    """
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise _missing(module, str(error)) from error
    finally:
        sys.path.remove(here)
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        raise _missing(module, "no such module" if found is None else str(found.origin))
    return Path(found.origin).read_text(encoding="utf-8")


def _missing(module: str, found: str) -> InvalidRequest:
    return InvalidRequest(
        "bad_partitioner",
        f"the partitioner's module {module} cannot be found",
        found=found,
        expected="a file of Python in the working directory or on PYTHONPATH",
    )
