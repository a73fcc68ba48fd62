"""The settings of processes: read once, at the edge, from flags, environment, file and defaults, in this order.

Every setting has a type, a unit, a default and bounds in one table; `resolve` says of each where its value came from.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anew.api.reach import check_url, host_names
from anew.api.security import RequestLimits
from anew.catalog.url import check_catalog_url, shown_catalog_url
from anew.core.errors import InvalidRequest
from anew.core.grants import check_token
from anew.core.settings import Kind, Setting, Settings, SettingValue, unknown_name
from anew.deepstore.uri import check_root, shown_root
from anew.log.url import log_kind_and_address
from anew.registry.urls import registry_urls
from anew.runtime.home import using_home

_DAY_SECONDS = 86_400
_LIMITS = RequestLimits()
_NOT_IN_FILE = {
    "home": "it says where the file is: set ANEW_HOME",
    "token": "others may read this file: name a file of its own with token_file",
}

PROCESS_SETTINGS = Settings(
    Setting("home", Kind.TEXT, ".anew", "the directory of the embedded cluster"),
    Setting("url", Kind.TEXT, None, "the controller of a running cluster, instead of the home's", check=check_url),
    Setting(
        "catalog",
        Kind.TEXT,
        None,
        "the metadata database: postgresql://USER:PASSWORD@HOST:PORT/DATABASE; default: SQLite in the home",
        check=check_catalog_url,
        shown=shown_catalog_url,
    ),
    Setting(
        "deep_store",
        Kind.TEXT,
        None,
        "where base files lie: /DIRECTORY or s3://BUCKET/PREFIX (keys: AWS_…); default: deepstore in the home",
        check=check_root,
        shown=shown_root,
    ),
    Setting(
        "log",
        Kind.TEXT,
        None,
        "where nearline writes go: kafka://HOST:PORT,… of some brokers; default: an embedded log in the home",
        check=log_kind_and_address,
    ),
    Setting(
        "kafka_properties_file",
        Kind.TEXT,
        None,
        "librdkafka's settings of TLS and SASL, in a file that only its owner may read; default: none",
    ),
    Setting(
        "schema_registry",
        Kind.TEXT,
        None,
        "the URL of a Confluent-compatible schema registry that numbers schemas, several separated by commas; "
        "default: the catalog numbers them",
        check=registry_urls,
    ),
    Setting(
        "schema_registry_user_file",
        Kind.TEXT,
        None,
        "NAME:PASSWORD for the registry, in a file that only its owner may read; default: none",
    ),
    Setting(
        "schema_registry_ca",
        Kind.TEXT,
        None,
        "the authorities whose certificates the registry may have, PEM; default: the system's",
    ),
    Setting("fabric", Kind.TEXT, None, "the fabric to read from and write to; default: the first"),
    Setting("bind", Kind.TEXT, "127.0.0.1", "the address on which controller and nodes listen"),
    Setting(
        "allow_open_bind",
        Kind.FLAG,
        False,
        "whether they may listen on other than a loopback address without asking for tokens",
    ),
    Setting(
        "advertise",
        Kind.TEXT,
        None,
        "the host name under which others reach controller and nodes; default: what they bind to",
    ),
    Setting(
        "allowed_hosts",
        Kind.TEXT,
        None,
        "further names (NAME or NAME:PORT, separated by commas) under which requests reach controller and nodes, "
        "such as those of a proxy; default: none",
        check=host_names,
    ),
    Setting(
        "tokens_file",
        Kind.TEXT,
        None,
        "the tokens that controller and nodes ask for (a file that only its owner may read); default: none",
    ),
    Setting(
        "token",
        Kind.TEXT,
        None,
        "the token that commands show; better in a file: token_file",
        check=check_token,
        shown=lambda _token: "***",
    ),
    Setting("token_file", Kind.TEXT, None, "the file that holds it, which only its owner may read"),
    Setting("tls_certificate", Kind.TEXT, None, "the servers' certificate chain, PEM; default: no TLS"),
    Setting("tls_key", Kind.TEXT, None, "its private key, PEM, which only its owner may read"),
    Setting("tls_ca", Kind.TEXT, None, "the authorities whose certificates clients trust, PEM"),
    Setting(
        "max_request_bytes",
        Kind.BYTES,
        _LIMITS.body_bytes,
        "the largest body of a request that controller and nodes take",
        1 << 20,
        1 << 30,
    ),
    Setting(
        "max_connections",
        Kind.COUNT,
        _LIMITS.connections,
        "how many connections controller and nodes each serve at once",
        16,
        65_536,
    ),
    Setting("port", Kind.COUNT, 7717, "the controller's port; nodes take the ones after it", 1, 65_000),
    Setting("nodes", Kind.COUNT, 2, "how many nodes an embedded cluster has", 1, 64),
    Setting("log_durable", Kind.FLAG, True, "whether an acknowledged write is on disk (fsync)"),
    Setting("timeout_seconds", Kind.SECONDS, 10, "how long one request may take", 1, 600),
    Setting("query_memory_bytes", Kind.BYTES, 2**30, "how much memory a query over tables may use", 2**24, 2**44),
    Setting("query_seconds", Kind.SECONDS, 60, "how long a query over tables may take", 1, 86_400),
    Setting("query_rows", Kind.COUNT, 1_000_000, "how many rows a query may answer with", 1, 1_000_000_000),
    Setting("query_threads", Kind.COUNT, 2, "how many threads a query uses", 1, 1_024),
    Setting(
        "segment_cache_bytes",
        Kind.BYTES,
        2**32,
        "how much a node keeps of segments that others host and its queries read",
        0,
        2**50,
    ),
    Setting("lease_seconds", Kind.SECONDS, 120, "a silent driver counts as lost after it", 5, 3_600),
    Setting(
        "controller_wait_seconds",
        Kind.SECONDS,
        120,
        "how long a rebuild's driver waits for a controller that does not answer",
        1,
        _DAY_SECONDS,
    ),
    Setting(
        "executor_wait_seconds",
        Kind.SECONDS,
        600,
        "how long a rebuild waits while Spark has no executor for it",
        1,
        _DAY_SECONDS,
    ),
    Setting(
        "failure_shown_seconds",
        Kind.SECONDS,
        _DAY_SECONDS,
        "how long a failed rebuild is told as a problem, unless it was seen",
        0,
        365 * _DAY_SECONDS,
    ),
    Setting("node_alive_seconds", Kind.SECONDS, 6, "a silent node counts as away after it", 1, 600),
    Setting("node_lost_seconds", Kind.SECONDS, 60, "a silent node's replicas go to others after it", 2, _DAY_SECONDS),
    Setting(
        "ready_deadline_seconds", Kind.SECONDS, 1_800, "a version that is not ready by then has failed", 1, _DAY_SECONDS
    ),
    Setting(
        "reclaim_grace_seconds",
        Kind.SECONDS,
        600,
        "how long files and log records stay after nobody needs them",
        0,
        30 * _DAY_SECONDS,
    ),
    Setting(
        "low_water_interval_seconds",
        Kind.SECONDS,
        60,
        "how often low-water marks are moved, and retention of embedded topics is applied",
        1,
        _DAY_SECONDS,
    ),
    Setting(
        "repush_source_wait_seconds",
        Kind.SECONDS,
        3_600,
        "how long a version between two plain repushes stays: its successor holds the same data",
        0,
        30 * _DAY_SECONDS,
    ),
    Setting(
        "scheduled_rebuilds", Kind.COUNT, 2, "how many scheduled repushes may be under way, over all stores", 0, 1_000
    ),
    Setting(
        "history_retention_seconds",
        Kind.SECONDS,
        30 * _DAY_SECONDS,
        "how long the history says who did what when",
        _DAY_SECONDS,
        3_650 * _DAY_SECONDS,
    ),
    Setting(
        "rebuild_retention_seconds",
        Kind.SECONDS,
        30 * _DAY_SECONDS,
        "how long rebuilds that have ended are listed; at least as long as a request id is known",
        _DAY_SECONDS,
        3_650 * _DAY_SECONDS,
    ),
    Setting(
        "request_retention_seconds",
        Kind.SECONDS,
        30 * _DAY_SECONDS,
        "how long a request id is known: repeated later, it is a new request",
        _DAY_SECONDS,
        3_650 * _DAY_SECONDS,
    ),
    Setting(
        "past_version_retention_seconds",
        Kind.SECONDS,
        30 * _DAY_SECONDS,
        "how long reclaimed versions are shown",
        _DAY_SECONDS,
        3_650 * _DAY_SECONDS,
    ),
    Setting(
        "dead_letter_retention_seconds",
        Kind.SECONDS,
        30 * _DAY_SECONDS,
        "how long dead letters are counted that were set aside and that no version reads any more",
        _DAY_SECONDS,
        3_650 * _DAY_SECONDS,
    ),
    Setting(
        "deleted_retention_seconds",
        Kind.SECONDS,
        30 * _DAY_SECONDS,
        "how long a deleted store or table is known; a name's version numbers are never used again",
        _DAY_SECONDS,
        3_650 * _DAY_SECONDS,
    ),
    Setting(
        "log_level",
        Kind.CHOICE,
        "info",
        "which events daemons write to their logs",
        choices=("debug", "info", "warning", "error"),
    ),
)
"""Every process setting, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A setting's value and where it came from: ``flag``, ``environment``, ``file`` or ``default``."""

    value: SettingValue
    source: str


class ProcessSettings:
    """The resolved settings of one process."""

    def __init__(self, resolved: Mapping[str, Resolved]) -> None:
        """Keep what `resolve` found."""
        self.resolved = dict(resolved)

    def text(self, name: str) -> str:
        """A setting that always has a value, as text."""
        return str(self.resolved[name].value)

    def optional(self, name: str) -> str | None:
        """A setting that may be unset."""
        value = self.resolved[name].value
        return None if value is None else str(value)

    def number(self, name: str) -> int:
        """A whole number."""
        value = self.resolved[name].value
        if not isinstance(value, int):
            raise TypeError(f"{name} is no number: {value!r}")
        return value

    def flag(self, name: str) -> bool:
        """True or false."""
        return self.resolved[name].value is True

    def was_given(self, name: str) -> bool:
        """Whether somebody said something, by presence and not by truth."""
        return self.resolved[name].source != "default"

    @property
    def home(self) -> Path:
        """The home, absolute."""
        return _home(self.text("home"))


def resolve(flags: Mapping[str, str | SettingValue], environment: Mapping[str, str] | None = None) -> ProcessSettings:
    """The settings of this process: flag > environment (``ANEW_<NAME>``) > ``<home>/settings.toml`` > default.

    Args:
        flags: What the command line said; names without a flag are left out.
        environment: For tests; None: the process's own.

    Raises:
        InvalidRequest: ``unknown_setting``, ``bad_setting``, ``bad_settings_file``.
        Refused: ``home_unusable``: this user may not read the file.
    """
    environment = dict(os.environ) if environment is None else dict(environment)
    given = {name: environment[variable_of(name)] for name in PROCESS_SETTINGS if variable_of(name) in environment}
    home = _home(str(flags.get("home", given.get("home", PROCESS_SETTINGS["home"].default))))
    with using_home(home):
        file = _settings_file(home / "settings.toml")
    resolved: dict[str, Resolved] = {}
    for name, setting in PROCESS_SETTINGS.items():
        for source, values in (("flag", flags), ("environment", given), ("file", file)):
            if name in values:
                resolved[name] = Resolved(setting.parse(values[name]), source)
                break
        else:
            resolved[name] = Resolved(setting.default, "default")
    return ProcessSettings(resolved)


def home_named(environment: Mapping[str, str] | None = None) -> Path:
    """The home that the environment names, whatever its other settings are: for what has to work when those do not.

    Args:
        environment: For tests; None: the process's own.
    """
    found = os.environ if environment is None else environment
    return _home(found.get(variable_of("home"), str(PROCESS_SETTINGS["home"].default)))


def _home(text: str) -> Path:
    return Path(text.strip()).expanduser().absolute()


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return f"ANEW_{name.upper()}"


def _settings_file(path: Path) -> dict[str, SettingValue]:
    if not path.is_file():
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest("bad_settings_file", f"{path} is not TOML", found=str(error)) from error
    known = [name for name in PROCESS_SETTINGS if name not in _NOT_IN_FILE]
    for name in values:
        if name not in known:
            message = f"{path} names an unknown setting"
            raise unknown_name("unknown_setting", message, name, known, hint=_NOT_IN_FILE.get(name))
    return values
