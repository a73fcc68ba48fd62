"""The seal: the manifest of a version is committed once the account of its rebuild balances (rule R19)."""

from __future__ import annotations

from collections.abc import Collection

from anew.api.stores.requests import Seal
from anew.catalog.change import Put, PutRebuild, PutReclaim
from anew.controller.engine.context import Context
from anew.controller.engine.records import find_of
from anew.controller.stores.reclaim import orphans_of
from anew.controller.stores.records import change_store, store_of
from anew.core.errors import Failed, Refused
from anew.core.feed import PositionMap
from anew.core.rebuild import DRIVEN_STAGES, Stage, advance, check_epoch
from anew.core.stores import lifecycle
from anew.core.stores.rebuild import StoreRebuild
from anew.core.stores.store import ManifestRef, RebuildKind, Store, Version, VersionStatus
from anew.segments.layout import manifest_path


def seal(context: Context, rebuild_id: str, request: Seal) -> StoreRebuild:
    """Commit the manifest by compare-and-swap, once the ledger balances and agrees with it (rule R19).

    Raises:
        Failed: ``ledger_imbalance``, ``fingerprint_mismatch``, ``quota_exceeded``, ``start_moved``, ``file_missing``.
        Refused: ``rebuild_ended``, ``epoch_outdated``, ``foreign_manifest``.
    """
    rebuild = find_of(context, rebuild_id, StoreRebuild)
    check_epoch(rebuild, request.epoch)
    store, now_ms = store_of(context, rebuild), context.clock()
    if store.has_left(rebuild.version):
        advance(rebuild, Stage.SEAL, now_ms)
    version = lifecycle.existing(store, rebuild.version)
    if version.manifest == request.manifest and rebuild.stage not in DRIVEN_STAGES:
        return rebuild
    # Before the files are looked at: those of a rebuild that has ended may be gone by now.
    advance(rebuild, Stage.SEAL, now_ms)
    _check_own(version, request.manifest)
    _check_account(request)
    _check_quota(store, rebuild, request)
    start = _sealed_start(version, request, rebuild.plan.target.feeds)
    built = version.where({VersionStatus.BUILDING})
    for fabric in built:
        if context.fabrics[fabric].deep_store.stat(request.manifest.path) is None:
            raise Failed(
                "file_missing", f"the manifest is not in the deep store of {fabric}", found=request.manifest.path
            )
    account = {"ledger": request.ledger, "fingerprint": request.fingerprint, "records_per_s": request.records_per_s}
    written = request.ledger.written.count

    def change(present: Store) -> tuple[Store, tuple[Put, ...]]:
        # Signs of life go on beside the seal, so that the record is looked at again at each try.
        newest = find_of(context, rebuild_id, StoreRebuild)
        check_epoch(newest, request.epoch)
        # The driver's last sign of life may be from before its last tasks.
        done = newest.progress.model_copy(
            update={"done": newest.progress.total, "bytes": newest.progress.total_bytes, "records": written}
        )
        advanced = advance(advance(newest, Stage.SEAL, now_ms), Stage.LOAD, now_ms)
        sealed = advanced.model_copy(update={**account, "progress": done})
        after = lifecycle.seal(present, rebuild.version, request.manifest, start, now_ms)
        orphans = (PutReclaim(orphans_of(context, present, version, fabric)) for fabric in built)
        return after, (PutRebuild(sealed, newest.revision), *orphans)

    operation = context.operation("seal version", store.name, "driver", rebuild=rebuild_id, version=version.number)
    change_store(context, store.uid, operation, change)
    return find_of(context, rebuild_id, StoreRebuild)


def _check_own(version: Version, manifest: ManifestRef) -> None:
    """Raise unless a manifest lies in the rebuild's own directory: elsewhere are the data of other rebuilds and stores.

    Raises:
        Refused: ``foreign_manifest``.
    """
    expected = manifest_path(version.path)
    if manifest.path != expected:
        raise Refused(
            "foreign_manifest",
            "the manifest does not lie in the rebuild's own directory",
            found=manifest.path[:200],
            expected=expected,
            hint="seal what this rebuild wrote",
        )


def _check_account(request: Seal) -> None:
    request.ledger.check()
    manifest, written = request.manifest, request.ledger.written
    found = (manifest.rows + manifest.tombstones, manifest.fingerprint)
    if found != (written.count, written.hash) or request.fingerprint.source != request.fingerprint.target:
        raise Failed(
            "fingerprint_mismatch",
            "the files do not hold what the rebuild merged",
            found=f"{found[0]} rows, fingerprint {found[1]:016x}",
            expected=f"{written.count} rows, fingerprint {request.fingerprint.source:016x}",
        )


def _check_quota(store: Store, rebuild: StoreRebuild, request: Seal) -> None:
    """A repush is not judged: its data is there already (case A14)."""
    quota_bytes = store.config.quota_bytes
    if rebuild.kind is RebuildKind.FULL_PUSH and 0 < quota_bytes < request.manifest.bytes:
        raise Failed(
            "quota_exceeded",
            f"the push is larger than {store.name} may be",
            found=f"{request.manifest.bytes} bytes",
            expected=f"at most quota_bytes = {quota_bytes}",
            hint=f"push less, or raise it: anew store update {store.name} --set quota_bytes=…",
        )


def _sealed_start(version: Version, request: Seal, known: Collection[str]) -> PositionMap:
    """From where the version applies its feeds: as begun, or later where a push counts from its end (rule R13).

    Feeds that were added since the plan was made (rule R9) are not ``known`` to the driver.
    """
    begun = next(iter(version.fabrics.values())).start
    planned = PositionMap({at: offset for at, offset in begun.items() if at.feed in known})
    if request.start is None or request.start == planned:
        return begun
    late = version.kind is RebuildKind.FULL_PUSH and version.config.rewind_from == "eop"
    if not late or request.start.keys() != planned.keys() or not request.start.reaches(planned):
        raise Failed(
            "start_moved",
            "the manifest names another start than the version began with",
            found=request.start.to_json(),
            expected=planned.to_json(),
        )
    return begun.merged(request.start)
