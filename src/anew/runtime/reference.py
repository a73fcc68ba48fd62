"""``docs/configuration.md``, made from the settings tables.

``python -m anew.runtime.reference > docs/configuration.md`` writes it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

from anew.core.properties import PROPERTIES, PROPERTY_ERRORS
from anew.core.settings import NOT_YET_SETTINGS, STORE_SETTINGS, Kind, Setting
from anew.core.tables.settings import ALIASES, TABLE_SETTINGS, TableSettings
from anew.runtime.settings import PROCESS_SETTINGS, variable_of

_HEAD = """\
# Configuration

Every setting of this release. The tables are made from those that the program itself reads with
`python -m anew.runtime.reference`; a test keeps this page current. A value that is not accepted is refused with what
is; an unknown store setting, key or name in `settings.toml` is refused with the nearest known one, never ignored.
"""

_STORES = """\
## Stores

Given as `anew store create NAME … --set name=value` and `anew store update NAME --set name=value`. A change that takes
effect with the next version is pending until a push or repush makes it; `anew store show NAME` lists what is pending.
"""

_TABLES = """\
## Tables

Given as `anew table create NAME --schema FILE [--config FILE] [--set name=value]` and `anew table update NAME …`; lists
and objects are written as JSON. A change that makes segments stale waits for a refresh; what it means is in
[tables.md](tables.md).
"""

_KEYS = """\
## Keys of a rebuild

Given to `anew push` and `anew repush` in a file (`--properties FILE`), as `-D key=value`, or to
`cluster.plan_repush(…, properties={…})`. `-D` wins over the file. They hold for that one rebuild.
"""

_PROCESSES = """\
## Processes

Read once when a process starts: a flag wins over the environment, the environment over `settings.toml` in the home,
the file over the default; by presence, not by truth. `anew settings show` prints each setting, its value and where it
came from. `home` says where the file is and cannot be set in it. A running cluster takes changes up with `anew down`
and `anew up`.
"""

_NOT_YET = """\
## Not supported yet

Known, but not offered by this release: refused with the code `not_supported_yet`.
"""


def configuration_page() -> str:
    """The page as Markdown; the same tables give the same text."""
    stores = [(f"`{s.name}`", s.meaning, _accepted(s), _default(s), s.takes.value) for s in STORE_SETTINGS.values()]
    keys = [(f"`{s.name}`", s.meaning, _accepted(s), _default(s), PROPERTY_ERRORS[s.name]) for s in PROPERTIES.values()]
    processes = [
        (f"`{s.name}`", s.meaning, _accepted(s), _default(s), f"`{variable_of(s.name)}`")
        for s in PROCESS_SETTINGS.values()
    ]
    columns = ("name", "meaning", "accepted", "default")
    parts = [
        _HEAD,
        _STORES,
        _table((*columns, "a change takes effect"), stores),
        _TABLES,
        _table((*columns, "a change makes segments stale", "other names"), _tables()),
        _KEYS,
        _table((*columns, "refused with"), keys),
        _PROCESSES,
        _table((*columns, "environment"), processes),
        _NOT_YET,
        _table(("what", "where"), _not_yet()),
    ]
    return "\n".join(parts)


def _tables() -> Iterable[tuple[str, ...]]:
    defaults = TableSettings().model_dump(mode="json")
    for setting in TABLE_SETTINGS.values():
        default = defaults[setting.name]
        others = ", ".join(f"`{alias}`" for alias, name in ALIASES.items() if name == setting.name)
        text = default if isinstance(default, str) else json.dumps(default)
        shown = "none" if default in (None, [], {}) else f"`{text}`"
        accepted = setting.expected.replace(" | ", ", ")
        yield f"`{setting.name}`", setting.meaning, accepted, shown, "yes" if setting.stale else "no", others or "–"


def _not_yet() -> list[tuple[str, str]]:
    return [(f"`{name}`", "store setting") for name in NOT_YET_SETTINGS]


def _accepted(setting: Setting) -> str:
    if setting.kind is Kind.CHOICE:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    return setting.expected


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "none"
    return f"`{str(setting.default).lower() if isinstance(setting.default, bool) else setting.default}`"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(configuration_page())
