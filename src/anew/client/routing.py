"""What a client knows of a store, cached: it goes on without the controller and never goes back (rule R17)."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable

from anew.api.http import ControllerClient
from anew.api.stores.requests import HoldVersion
from anew.api.stores.routing import Routing
from anew.core.errors import AnewError, Unreachable

_FRESH_SECONDS = 5.0


class RoutingCache:
    """One store's routing; safe to use from several threads."""

    def __init__(
        self,
        controller: ControllerClient,
        name: str,
        fabric: str | None,
        clock_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Load lazily.

        Args:
            controller: Who is asked.
            name: The store's.
            fabric: Whose nodes and log; None: the cluster's first.
            clock_seconds: A monotonic clock.
        """
        self._controller = controller
        self._name = name
        self._fabric = fabric
        self._clock_seconds = clock_seconds
        self._lock = threading.Lock()
        self._routing: Routing | None = None
        self._loaded_at = -math.inf

    def get(self) -> Routing:
        """The routing; asked for again when it is some seconds old, kept when the controller is away.

        Raises:
            NotFound: ``unknown_store``.
            Unreachable: The controller never answered.
        """
        routing = self._routing
        if routing is None or self._clock_seconds() - self._loaded_at > _FRESH_SECONDS:
            return self.refresh()
        return routing

    def refresh(self) -> Routing:
        """The newest routing that can be had; an older revision than the known one is not taken."""
        with self._lock:
            try:
                found = self._controller.routing(self._name, self._fabric)
            except Unreachable:
                if self._routing is None:
                    raise
                self._loaded_at = self._clock_seconds()
                return self._routing
            present = self._routing
            if present is None or found.uid != present.uid or found.revision >= present.revision:
                self._routing = found
            self._loaded_at = self._clock_seconds()
            return self._routing if self._routing is not None else found

    def hold(self, version: int, seconds: int, hold: str | None = None) -> None:
        """Ask that a version be kept for a long read; without the controller the read goes on without.

        Args:
            version: Which one.
            seconds: For how long from now.
            hold: The read's own id, by which it lets go again.

        Raises:
            Refused: ``version_gone``.
        """
        with contextlib.suppress(Unreachable):
            self._controller.hold_version(self._name, HoldVersion(version=version, seconds=seconds, hold=hold))

    def release(self, version: int, hold: str) -> None:
        """Let go of a version that a read held; where that cannot be said, the hold ends by itself."""
        with contextlib.suppress(AnewError):
            self._controller.hold_version(self._name, HoldVersion(version=version, seconds=0, hold=hold))

    def notice(self, current: int, revision: int) -> None:
        """A node said what is current there: when it knows more than we do, ask the controller at the next read."""
        routing = self._routing
        if routing is not None and revision > routing.revision and current != routing.current:
            self._loaded_at = -math.inf
