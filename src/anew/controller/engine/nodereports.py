"""What nodes reported last, parsed once: rounds, routings and views ask for the same few reports over and over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anew.api.models import NodeReport
from anew.api.segments import SegmentReport
from anew.catalog.change import NodeRecord

Copies = Mapping[str, Mapping[str, SegmentReport]]
"""Uid of a table → segment → what a node says of it."""


@dataclass(slots=True)
class NodeReports:
    """The reports of all nodes; safe to use from several threads, because nobody changes what was parsed."""

    _parsed: dict[str, tuple[str, NodeReport]] = field(default_factory=dict)
    _unkept: dict[str, NodeRecord] = field(default_factory=dict)
    _copies: dict[str, tuple[NodeReport, Copies]] = field(default_factory=dict)

    def unkept(self, record: NodeRecord) -> None:
        """The catalog did not take it, which may be for want of room: what it says holds all the same."""
        self._unkept[record.id] = record

    def kept(self, node: str) -> None:
        """The catalog has what a node said last."""
        self._unkept.pop(node, None)

    def newest(self, records: Iterable[NodeRecord]) -> list[NodeRecord]:
        """The catalog's records, each as it was heard last."""
        unkept = self._unkept.copy()
        return [max(unkept.get(record.id, record), record, key=_heard_at) for record in records]

    def reports(self, records: Iterable[NodeRecord]) -> list[NodeReport]:
        """What the records say, in their order."""
        return [self.report(record) for record in records]

    def is_news(self, record: NodeRecord) -> bool:
        """Whether a record says something else than the one of that node that was looked at last."""
        text, _ = self._parsed.get(record.id, ("", None))
        return text != record.report

    def report(self, record: NodeRecord) -> NodeReport:
        """What one record says."""
        text, report = self._parsed.get(record.id, ("", None))
        if report is None or text != record.report:
            report = NodeReport.model_validate_json(record.report)
            # One for each node, so that what is kept does not grow with time.
            self._parsed[record.id] = (record.report, report)
        return report

    def copies(self, report: NodeReport) -> Copies:
        """What a node said of segments, sorted once for as long as it says the same."""
        known, copies = self._copies.get(report.node, (None, {}))
        if known is not report:
            sorted_out = defaultdict[str, dict[str, SegmentReport]](dict)
            for copy in report.segments:
                sorted_out[copy.table_uid][copy.segment] = copy
            copies = sorted_out
            self._copies[report.node] = report, copies
        return copies


def _heard_at(record: NodeRecord) -> int:
    return record.last_seen_ms
