"""What nodes reported last, parsed once: rounds, routings and views ask for the same few reports over and over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from anew.api.models import NodeReport
from anew.catalog.change import NodeRecord

_T = TypeVar("_T")


@dataclass(slots=True)
class NodeReports:
    """The reports of all nodes; safe to use from several threads, because nobody changes what was parsed."""

    _parsed: dict[str, tuple[str, NodeReport]] = field(default_factory=dict)
    _unkept: dict[str, NodeRecord] = field(default_factory=dict)
    _derived: dict[tuple[str, Callable[[NodeReport], Any]], tuple[NodeReport, Any]] = field(default_factory=dict)

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

    def derived(self, report: NodeReport, make: Callable[[NodeReport], _T]) -> _T:
        """What a function makes of a node's report, made once for as long as the node says the same."""
        key = report.node, make
        known = self._derived.get(key)
        if known is None or known[0] is not report:
            # One for each node and function, so that what is kept does not grow with time.
            known = self._derived[key] = report, make(report)
        made: _T = known[1]
        return made


def _heard_at(record: NodeRecord) -> int:
    return record.last_seen_ms
