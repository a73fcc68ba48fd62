"""What the controller of a home works with: its catalog, log and deep store, opened as the settings say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from anew.api.models import RestoreCatalog
from anew.api.upkeep import RestoredCatalog
from anew.catalog.database import DatabaseCatalog
from anew.controller.engine.context import Context, Fabric, Limits
from anew.controller.restore.restore import restore
from anew.controller.subjects import OUTPUTS, SUBJECTS
from anew.core.errors import Unreachable
from anew.core.rowretention import RowRetention
from anew.log.open import open_log
from anew.loops.guarded import Loops
from anew.runtime.clock import new_id, now_ms
from anew.runtime.driverlogs import HomeLogs
from anew.runtime.home import ClusterFile, Home
from anew.runtime.outside import SHARE_OF_REQUEST, cluster_deep_store, log_location, schema_registry
from anew.runtime.scheduled import launcher
from anew.runtime.security import tokens_file
from anew.runtime.settings import ProcessSettings


@contextmanager
def controller_context(settings: ProcessSettings, home: Home, cluster: ClusterFile) -> Iterator[Context]:
    """The collaborators of a home's controller; closed at the end.

    Raises:
        Unreachable: ``catalog_unreachable``.
        Refused: ``catalog_newer``.
    """
    url, catalog_seconds = settings.optional("catalog"), settings.number("timeout_seconds") * SHARE_OF_REQUEST
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
        failure_shown_seconds=settings.number("failure_shown_seconds"),
        row_retention=RowRetention(
            history=settings.number("history_retention_seconds"),
            rebuild=settings.number("rebuild_retention_seconds"),
            request=settings.number("request_retention_seconds"),
            past_version=settings.number("past_version_retention_seconds"),
            dead_letter=settings.number("dead_letter_retention_seconds"),
            deleted=settings.number("deleted_retention_seconds"),
        ),
    )
    registry = schema_registry(settings)
    token_file = None if tokens_file(settings) is None else home.cluster_token
    launch = launcher(cluster.url, home.path / "logs", token_file)
    try:
        yield Context(
            catalog,
            {fabric.name: fabric},
            now_ms,
            new_id,
            limits,
            version("anew"),
            launch,
            SUBJECTS,
            OUTPUTS,
            registry=registry,
            loops=Loops(now_ms),
            driver_logs=HomeLogs(home.path / "logs", now_ms),
        )
    finally:
        if registry is not None:
            registry.close()
        log.close()
        catalog.close()


def restore_at_rest(settings: ProcessSettings, home: Home, request: RestoreCatalog, actor: str) -> RestoredCatalog:
    """Restore the catalog of a home whose cluster does not run; nobody can start it meanwhile.

    Raises:
        Unreachable: ``no_cluster``: there is no such home.
        Refused, Unreachable: As `anew.controller.restore.restore.restore`; ``already_up``.
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
