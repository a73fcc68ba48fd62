"""The controller as a process: HTTP server and reconciler over one context, until it is told to stop."""

from __future__ import annotations

import threading
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from anew.api.security import HEAD_BYTES, KEEP_ALIVE_SECONDS, OPEN_SERVER, ServerSecurity
from anew.controller.app import make_app
from anew.controller.engine.context import Context
from anew.controller.engine.watch import Watch
from anew.controller.http.slowheads import patient_for
from anew.controller.reconcile import Reconciler
from anew.core.errors import AnewError

_LOG = structlog.get_logger("anew.controller")
_ROUND_SECONDS = 0.5
"""Changes and reports that come here begin a round at once; this is for what others change, and for the clock."""


_MOST_ROUNDS_IN_A_ROW = 6
"""As many as a version takes to become current; what changes something in every round shall not keep a processor."""


class ControllerServer:
    """Serves and reconciles. `run` blocks; `stop` may be called from any thread or signal handler."""

    def __init__(self, context: Context, address: str, port: int, security: ServerSecurity = OPEN_SERVER) -> None:
        """Prepare, without listening yet."""
        self._watch = context.watch
        self._reconciler = Reconciler(context)
        self._loops, self._stopped = context.loops, threading.Event()
        self._loop, self._upkeep = context.loops.loop("reconciler"), context.loops.loop("upkeep")
        app = make_app(context, security, address)
        self._server = _Server(_config(app, address, port, security), self._watch)

    def run(self) -> None:
        """Serve until `stop` or SIGTERM."""
        self._loops.watch(self._stopped)
        threads = [
            threading.Thread(target=self._reconcile, name="reconciler", daemon=True),
            threading.Thread(target=lambda: self._upkeep.run(self._keep, self._stopped), name="upkeep", daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            self._server.run()
        finally:
            self._stopped.set()
            self._watch.close()
            for thread in threads:
                thread.join(timeout=10)
            if not any(thread.is_alive() for thread in threads):
                self._remember()

    def stop(self) -> None:
        """End `run` soon."""
        self._watch.close()
        self._server.should_exit = True

    @property
    def started(self) -> bool:
        """Whether it listens."""
        return self._server.started

    def _remember(self) -> None:
        """What was changed since the last round is written down too."""
        try:
            self._reconciler.remember()
        except AnewError as error:
            _LOG.warning("records_not_written", **error.to_json())
        except Exception:  # noqa: BLE001 - the process ends anyway; the next controller writes them
            _LOG.exception("records_not_written")

    def _reconcile(self) -> None:
        while not self._watch.closed:
            pause_seconds = self._loop.turn(self._round)
            self._watch.pause(max(pause_seconds, _ROUND_SECONDS))

    def _round(self) -> None:
        # What waits to be swapped does not wait until all others have been looked at.
        self._watch.repeat(self._reconciler.hurry, _MOST_ROUNDS_IN_A_ROW)
        self._watch.repeat(self._reconciler.advance, _MOST_ROUNDS_IN_A_ROW)

    def _keep(self) -> None:
        self._reconciler.keep()
        self._stopped.wait(_ROUND_SECONDS)


class _Server(uvicorn.Server):
    """Lets long polls go as soon as a signal asks for the end, so that the shutdown need not wait for them."""

    def __init__(self, config: uvicorn.Config, watch: Watch) -> None:
        super().__init__(config)
        self._watch = watch

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called in the main thread for SIGTERM and SIGINT."""
        self._watch.close()
        super().handle_exit(sig, frame)


def run_controller(context: Context, address: str, port: int, security: ServerSecurity = OPEN_SERVER) -> None:
    """Run a controller in this process until SIGTERM or SIGINT."""
    ControllerServer(context, address, port, security).run()


def _config(app: FastAPI, address: str, port: int, security: ServerSecurity) -> uvicorn.Config:
    limits = security.limits
    return uvicorn.Config(
        app,
        host=address,
        port=port,
        http=patient_for(limits.head_seconds),
        ws="none",
        h11_max_incomplete_event_size=HEAD_BYTES,
        limit_concurrency=limits.connections,
        timeout_keep_alive=int(KEEP_ALIVE_SECONDS),
        server_header=False,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=3,
        ssl_certfile=security.certificate,
        ssl_keyfile=security.key,
    )
