"""A store as a DataFrame, read from where rebuilds read: the deep store and the log, not the nodes."""

from __future__ import annotations

from anew.api.http import ControllerClient
from anew.core.stores.planning import RepushRequest
from anew.deepstore.open import open_deep_store
from anew.rebuild.stores.planner import make_repush_plan
from anew.segments.dictionary import codec_of
from anew.segments.manifest import parse_manifest
from anew.spark.session import DataFrame, SparkSession, session_for_queries
from anew.spark.stores.build import Place, source_floors
from anew.spark.stores.outputs import BaseTarget
from anew.spark.stores.reading import DecodeTask, read_rows


def read_store(controller: ControllerClient, spark: SparkSession, name: str) -> DataFrame:
    """The current version with all writes up to now: columns ``key``, ``value``, ``written_at`` (ms).

    Raises:
        NotFound: ``unknown_store``.
        Refused: ``nothing_to_repush``: there is no version yet.
    """
    plan = make_repush_plan(controller, name, RepushRequest())
    store = controller.snapshot(name).store
    source, ref = controller.cluster(plan.source.fabric), plan.source.manifest
    if ref is None or plan.source.config is None:
        raise AssertionError("a repush's plan names its source's manifest and configuration")
    deep_store = open_deep_store(source.deep_store)
    manifest = parse_manifest(deep_store.get(ref.path), ref)
    feeds = store.feeds_with_schemas(plan.fence.feeds)
    place = Place(source.deep_store, source.log, BaseTarget(source.deep_store, ""))
    task = DecodeTask(store.key_schema, store.schemas, codec_of(deep_store, manifest), source_floors(plan))
    return read_rows(session_for_queries(spark), plan, place, manifest, feeds, task)
