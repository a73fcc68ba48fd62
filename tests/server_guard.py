"""Runs a server of a test run while whoever started this lives: ``python server_guard.py DIR USER COMMAND …``.

Started as a program of its own, with the standard library alone. The starter holds the other end of standard input:
``stop`` ends the server in order; an end without a word means that the starter is gone, however it went, and then the
server is ended and the directory removed. With an empty USER the server runs as whoever started this. Should this
process be killed, the kernel ends the server.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1
_STOP_SECONDS = 20.0
_NOT_FOR_US = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


def main(directory: str, user: str, command: list[str]) -> int:
    """Keep the server running until told to stop; returns its exit code."""
    for ignored in _NOT_FOR_US:
        # Ctrl-C and timeout(1) reach the whole group: the end of the starter decides, not the signal.
        signal.signal(ignored, signal.SIG_IGN)
    account = {"user": user, "group": user_group(user), "extra_groups": []} if user else {}
    with open(os.path.join(directory, "server.log"), "ab") as log:  # noqa: PTH118, PTH123 - keeps this file's start short
        server = subprocess.Popen(  # type: ignore[call-overload]  # the account is a mapping
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_end_with_parent,
            **account,
        )
    told = threading.Event()
    follower = threading.Thread(target=_follow, args=(server, directory, told), daemon=True)
    follower.start()
    code = int(server.wait())
    if told.is_set():
        follower.join()
    return code


def user_group(user: str) -> int:
    """The first group of a user."""
    return pwd.getpwnam(user).pw_gid


def _follow(server: subprocess.Popen[bytes], directory: str, told: threading.Event) -> None:
    word = sys.stdin.readline().strip()
    told.set()
    server.send_signal(signal.SIGINT if word == "stop" else signal.SIGQUIT)
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
    if word != "stop":
        shutil.rmtree(directory, ignore_errors=True)


def _end_with_parent() -> None:
    # After the change of the user, which would undo it.
    for ignored in (*_NOT_FOR_US, signal.SIGQUIT):
        # A shell ignores some of them for what it runs in the background; Java would go on ignoring them.
        signal.signal(ignored, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
