"""``docs/configuration.md``, made from the settings tables.

``python -m anew.runtime.reference > docs/configuration.md`` writes it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence

from anew.core.settings import Kind, Setting, Settings
from anew.core.stores.properties import PROPERTIES, PROPERTY_ERRORS
from anew.core.stores.settings import STORE_SETTINGS
from anew.core.tables.settings import TABLE_SETTINGS
from anew.runtime.settings import PROCESS_SETTINGS, variable_of

_HEAD = """\
# Configuration

Every setting of this release. The tables are made from those that the program itself reads with
`python -m anew.runtime.reference`; a test keeps this page current. A value that is not accepted is refused with what
is; an unknown setting, key or name in `settings.toml` is refused with the nearest known one, never ignored. Null gives
a setting its default again. So does an empty text, where the default is none.
"""

_STORES = """\
## Stores

Given as `anew store create NAME … --set name=value` and `anew store update NAME --set name=value`. A change that takes
effect with the next version is pending until a push or repush makes it; `anew store show NAME` lists what is pending.
"""

_TABLES = """\
## Tables

Given as `anew table create NAME --schema FILE [--config FILE] [--set name=value]` and `anew table update NAME …`; lists
and objects are written as JSON. A change that takes effect with a refresh makes segments stale; what that means is in
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
    parts = [
        _HEAD,
        _STORES,
        _listed(STORE_SETTINGS, ("a change takes effect", _takes)),
        _TABLES,
        _listed(TABLE_SETTINGS, ("a change takes effect", _takes), ("other names", _other_names)),
        _KEYS,
        _listed(PROPERTIES, ("refused with", lambda setting: PROPERTY_ERRORS[setting.name])),
        _PROCESSES,
        _listed(PROCESS_SETTINGS, ("environment", lambda setting: f"`{variable_of(setting.name)}`")),
        _NOT_YET,
        _table(("what", "where"), [(f"`{name}`", "store setting") for name in STORE_SETTINGS.not_yet]),
    ]
    return "\n".join(parts)


def _listed(settings: Settings, *more: tuple[str, Callable[[Setting], str]]) -> str:
    """One row for each setting: what all settings have, then further columns with what each says there."""
    columns = ("name", "meaning", "accepted", "default", *(column for column, _ in more))
    rows = [
        (f"`{s.name}`", s.meaning, _accepted(s), _default(s), *(cell(s) for _, cell in more)) for s in settings.values()
    ]
    return _table(columns, rows)


def _takes(setting: Setting) -> str:
    return setting.takes.value


def _other_names(setting: Setting) -> str:
    return ", ".join(f"`{alias}`" for alias, name in TABLE_SETTINGS.aliases.items() if name == setting.name) or "–"


def _accepted(setting: Setting) -> str:
    if setting.kind is Kind.CHOICE:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    return setting.expected


def _default(setting: Setting) -> str:
    if setting.default in (None, (), {}):
        return "none"
    default = setting.default
    return f"`{default if isinstance(default, str) else json.dumps(default, default=dict)}`"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(configuration_page())
