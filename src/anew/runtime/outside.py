"""What a cluster works on and others keep: its log, its deep store, its schema registry, as the settings name them."""

from __future__ import annotations

from pathlib import Path

from anew.api.location import LogLocation
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.deepstore.uri import parse_root
from anew.log.open import open_log
from anew.log.url import log_kind_and_address
from anew.registry.interface import SchemaRegistry
from anew.registry.urls import registry_urls
from anew.runtime.clock import now_ms
from anew.runtime.home import Home
from anew.runtime.security import kafka_properties, registry_user
from anew.runtime.settings import ProcessSettings

SHARE_OF_REQUEST = 0.5
"""How much of a request's time the catalog, or the registry, may take: who asked shall hear that it does not answer."""
_ASKED_FOR = "anew-is-there"
"""A topic, or a subject, that nobody has: whoever says so answers."""


def log_location(settings: ProcessSettings, home: Home, fabric: str) -> LogLocation:
    """Where a fabric's log is: on the brokers that the settings name, by default a directory of the home."""
    url = settings.optional("log")
    if url is None:
        return LogLocation(kind="embedded", address=str(home.log(fabric)))
    kind, address = log_kind_and_address(url)
    return LogLocation(kind=kind, address=address, properties_file=kafka_properties(settings))


def schema_registry(settings: ProcessSettings) -> SchemaRegistry | None:
    """The registry that numbers schemas; None where the catalog does.

    Raises:
        InvalidRequest: ``bad_registry``, ``bad_registry_ca``, ``bad_registry_user``.
        Refused: ``file_not_private``.
    """
    urls = settings.optional("schema_registry")
    if urls is None:
        return None
    # Most clusters have none, and this brings an HTTP client of its own.
    from anew.registry.confluent import ConfluentRegistry

    authorities = settings.optional("schema_registry_ca")
    return ConfluentRegistry(
        registry_urls(urls),
        user=registry_user(settings),
        authorities=None if authorities is None else Path(authorities).expanduser(),
        timeout_seconds=settings.number("timeout_seconds") * SHARE_OF_REQUEST,
    )


def check_registry(settings: ProcessSettings) -> None:
    """Raise unless the schema registry answers, where there is one.

    Raises:
        Unreachable: ``registry_unreachable``.
        Refused, InvalidRequest, Failed: As `schema_registry`, and what it answers.
    """
    registry = schema_registry(settings)
    if registry is not None:
        try:
            registry.versions(_ASKED_FOR)
        finally:
            registry.close()


def check_log(settings: ProcessSettings, home: Home, fabric: str) -> None:
    """Raise unless the log answers; an embedded one is not looked at.

    Raises:
        Unreachable: ``log_unreachable``.
        Refused: ``log_not_allowed``, ``file_not_private``.
        InvalidRequest: ``bad_log``, ``bad_kafka_properties``, ``no_kafka_properties``.
    """
    location = log_location(settings, home, fabric)
    if location.kind != "kafka":
        return
    log = open_log(location, clock=now_ms)
    try:
        log.topic(_ASKED_FOR)
    finally:
        log.close()


def cluster_deep_store(settings: ProcessSettings, home: Home, fabric: str) -> DeepStore:
    """A fabric's part of the deep store that the settings name; by default a directory of the home, which is made."""
    location = settings.optional("deep_store")
    if location is None:
        directory = home.deep_store(fabric)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open_deep_store(str(directory))
    return open_deep_store(f"{parse_root(location).uri}/{fabric}", settings.number("timeout_seconds"))
