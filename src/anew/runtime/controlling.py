"""What the controller of a home works with: its catalog, log and deep store, opened as the settings say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anew.api.models import LogLocation, RestoreCatalog
from anew.catalog.database import DatabaseCatalog
from anew.controller.context import Context, Fabric, Limits
from anew.controller.restoring import restore
from anew.core.errors import Unreachable
from anew.deepstore.interface import DeepStore
from anew.deepstore.open import open_deep_store
from anew.deepstore.uri import parse_root
from anew.log.open import log_kind_and_address, open_log
from anew.registry.interface import SchemaRegistry
from anew.registry.urls import registry_urls
from anew.runtime.clock import new_id, now_ms
from anew.runtime.home import ClusterFile, Home
from anew.runtime.scheduled import REFRESH, REPUSH, launcher
from anew.runtime.security import kafka_properties, registry_user, tokens_file
from anew.runtime.settings import ProcessSettings

_ASKED_FOR = "anew-is-there"
"""A topic, or a subject, that nobody has: whoever says so answers."""
_CATALOG_SHARE = 0.5
"""How much of a request's time the catalog, or the registry, may take: who asked shall hear that it does not answer."""


@contextmanager
def controller_context(settings: ProcessSettings, home: Home, cluster: ClusterFile) -> Iterator[Context]:
    """The collaborators of a home's controller; closed at the end.

    Raises:
        Unreachable: ``catalog_unreachable``.
        Refused: ``catalog_newer``.
    """
    url, catalog_seconds = settings.optional("catalog"), settings.number("timeout_seconds") * _CATALOG_SHARE
    catalog = DatabaseCatalog(home.catalog_url if url is None else url, catalog_seconds)
    location = log_location(settings, home, cluster.fabric)
    log = open_log(location, clock=now_ms, durable=settings.flag("log_durable"))
    fabric = Fabric(
        name=cluster.fabric,
        log=log,
        log_location=location,
        deep_store=cluster_deep_store(settings, home, cluster.fabric),
    )
    limits = Limits(
        lease_seconds=settings.number("lease_seconds"),
        node_alive_seconds=settings.number("node_alive_seconds"),
        node_lost_seconds=settings.number("node_lost_seconds"),
        ready_deadline_seconds=settings.number("ready_deadline_seconds"),
        reclaim_grace_seconds=settings.number("reclaim_grace_seconds"),
        low_water_interval_seconds=settings.number("low_water_interval_seconds"),
        repush_source_wait_seconds=settings.number("repush_source_wait_seconds"),
        scheduled_rebuilds=settings.number("scheduled_rebuilds"),
    )
    registry = schema_registry(settings)
    token_file = None if tokens_file(settings) is None else home.cluster_token
    repushes, refreshes = (launcher(cluster.url, home.path / "logs", token_file, what) for what in (REPUSH, REFRESH))
    try:
        yield Context(
            catalog,
            {fabric.name: fabric},
            now_ms,
            new_id,
            limits,
            version("anew"),
            repushes,
            refreshes,
            registry=registry,
        )
    finally:
        if registry is not None:
            registry.close()
        log.close()
        catalog.close()


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
        timeout_seconds=settings.number("timeout_seconds") * _CATALOG_SHARE,
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


def restore_at_rest(settings: ProcessSettings, home: Home, request: RestoreCatalog, actor: str) -> dict[str, Any]:
    """Restore the catalog of a home whose cluster does not run; nobody can start it meanwhile.

    Raises:
        Unreachable: ``no_cluster``: there is no such home.
        Refused, Unreachable: As `anew.controller.restoring.restore`; ``already_up``.
    """
    cluster = home.read_cluster()
    if cluster is None:
        raise Unreachable(
            "no_cluster",
            f"no cluster was made in {home.path}",
            found="no cluster.json",
            expected="the home of the lost catalog, with its log and its deep store",
            hint="set ANEW_HOME, or ANEW_URL",
        )
    with home.lock(), controller_context(settings, home, cluster) as context:
        return restore(context, request, actor)
