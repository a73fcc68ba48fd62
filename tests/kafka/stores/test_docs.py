"""The commands of docs/operations.md on Kafka run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import ENVIRONMENT, broker_home
from tests.cluster.commands import Anew
from tests.ports import port_of

_PAGE = Path(__file__).parents[3] / "docs" / "operations.md"


@pytest.mark.timeout(300)
def test_the_commands_on_kafka_run() -> None:
    """Every sh block of the page, in one shell that stops at the first failure, in a home that has nothing yet."""
    blocks = re.findall(r"^```sh\n(.*?)^```", _PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    with broker_home() as home:
        anew = Anew(home.path, {**ENVIRONMENT, "ANEW_PORT": str(port_of("kafka demo"))})
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        try:
            done = subprocess.run(
                ["bash", "-c", "set -euo pipefail\n" + "\n".join(blocks)],
                env={**anew.environment, "PATH": path},
                capture_output=True,
                text=True,
                timeout=280,
                check=False,
            )
        finally:
            anew.run("down")
        assert done.returncode == 0, (done.stdout[-3_000:], done.stderr[-3_000:])
        assert anew.run("kafka", "status").error["code"] == "no_brokers", "the brokers were stopped"
