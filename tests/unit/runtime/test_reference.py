"""The configuration page says what the tables say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anew.core.stores.properties import PROPERTIES
from anew.core.stores.settings import STORE_SETTINGS
from anew.core.tables.settings import TABLE_SETTINGS
from anew.runtime.reference import configuration_page
from anew.runtime.settings import PROCESS_SETTINGS

_PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def _rows(page: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]


def test_the_page_is_current() -> None:
    """``docs/configuration.md`` is what the tables make of it; otherwise write it anew as its head says."""
    assert _PAGE.read_text(encoding="utf-8") == configuration_page()


def test_the_command_prints_the_page() -> None:
    """``python -m anew.runtime.reference`` prints the page and nothing else."""
    command = [sys.executable, "-m", "anew.runtime.reference"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == (configuration_page(), "")


def test_every_name_has_its_row() -> None:
    """Each setting and each key has exactly one row, in the order of the tables; what is not offered has one too."""
    expected = [*STORE_SETTINGS, *TABLE_SETTINGS, *PROPERTIES, *PROCESS_SETTINGS, *STORE_SETTINGS.not_yet]
    assert [row[0].strip("`") for row in _rows(configuration_page())] == expected


@pytest.mark.parametrize(
    "row",
    [
        "| `rt_partitioner` | how producers place keys in the real-time topic; any: their own way, so that all "
        "partitions are read | `xxhash64`, `any` | `xxhash64` | never (chosen when the store is made) |",
        "| `owner` | who is asked about the store | text | none | at once |",
        "| `codec` | how columns are compressed | `none`, `snappy`, `gzip`, `lz4`, `zstd`, `brotli` | `zstd` | "
        "with a refresh | `compression` |",
        "| `source.kafka` | take the store's own data as the input: a repush | true or false | none | "
        "`contradiction`: with input files, or false on a repush |",
        "| `log_durable` | whether an acknowledged write is on disk (fsync) | true or false | `true` | "
        "`ANEW_LOG_DURABLE` |",
        "| `active_fabric` | store setting |",
    ],
)
def test_rows_say_what_is_accepted_and_what_holds_by_default(row: str) -> None:
    """Choices, defaults of every kind, when a change takes effect, and environment variables are spelt out."""
    assert row in configuration_page().splitlines()
