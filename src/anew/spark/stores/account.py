"""The account between scan and merge: what came out of the shuffle is what was put in, source by source (rule R19)."""

from __future__ import annotations

from typing import Any

from anew.core.errors import Failed
from anew.core.ledger import MODULUS, Entry, Ledger
from anew.spark.stores.mergewrite import TaskReport


def check_scans(reports: list[TaskReport], expected: dict[str, Entry], split_ids: set[str]) -> Ledger:
    """Compare what came out of the shuffle with what was put in, source by source (rule R19).

    Args:
        reports: Of all merge tasks.
        expected: Sources whose account is known beforehand (``base`` from the manifest).
        split_ids: The splits of the plan: each must have reported exactly once.

    Returns:
        What the scans did before the shuffle: records that they put aside (count only; they never got a hash), and
        what their combiners did.

    Raises:
        Failed: ``split_missing``, ``rows_lost``.
    """
    scans = [scan for report in reports for scan in report.scans]
    found_ids = [scan["split"] for scan in scans if "split" in scan]
    if sorted(found_ids) != sorted(split_ids):
        raise Failed(
            "split_missing",
            "the splits that reported are not the plan's",
            found=sorted(set(found_ids) ^ split_ids)[:5],
            expected=f"{len(split_ids)} splits, each once",
        )
    put_in = dict(expected)
    for scan in scans:
        entry = Entry(count=scan["records"], hash=scan["hash"])
        put_in[scan["source"]] = put_in.get(scan["source"], Entry()) + entry
    came_out: dict[str, Entry] = {}
    for report in reports:
        for name, entry in report.sources.items():
            came_out[name] = came_out.get(name, Entry()) + entry
    for name in put_in.keys() | came_out.keys():
        if put_in.get(name, Entry()) != came_out.get(name, Entry()):
            raise Failed(
                "rows_lost",
                f"rows of {name} were lost or made twice between the scan and the merge",
                found=f"{came_out.get(name, Entry()).count} rows",
                expected=f"{put_in.get(name, Entry()).count} rows",
                hint="the new version is not used; run the rebuild again",
            )
    return sum((_before_shuffle(scan) for scan in scans), Ledger())


def _before_shuffle(scan: dict[str, Any]) -> Ledger:
    skipped = Entry(count=int(scan.get("skipped", 0)))
    if "superseded" not in scan:
        return Ledger(read=skipped, skipped=skipped)
    superseded, raised = Entry(**scan["superseded"]), Entry(**scan["raised"])
    read = Entry(count=superseded.count, hash=(superseded.hash - raised.hash) % MODULUS)
    return Ledger(read=read + skipped, skipped=skipped, superseded=superseded, raised=raised, combined=superseded)
