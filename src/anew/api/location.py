"""Where a fabric's log is."""

from __future__ import annotations

from anew.api.wire import Wire


class LogLocation(Wire):
    """Where a fabric's log is: ``embedded`` with a directory, or ``kafka`` with addresses of brokers.

    Attributes:
        properties_file: Where whoever opens it finds settings of TLS and SASL, unless its own settings say otherwise.
    """

    kind: str
    address: str
    properties_file: str | None = None

    def through(self, brokers: str) -> LogLocation:
        """The same log as other brokers, or other listeners, of its cluster give it (case A9)."""
        return LogLocation(kind="kafka", address=brokers, properties_file=self.properties_file)
