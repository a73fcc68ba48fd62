"""The documents' commands run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.commands import Anew, wait_until
from tests.ports import port_of

_ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PORT = str(port_of("docs"))


def _blocks(document: str) -> list[str]:
    return _BLOCK.findall((_ROOT / document).read_text(encoding="utf-8"))


@pytest.mark.timeout(700)
def test_the_tour_runs_from_its_first_command_to_its_last(tmp_path: Path) -> None:
    """Every bash block of the tour, in one shell that stops at the first failure."""
    script = "set -euo pipefail\n" + "\n".join(_blocks("docs/tour.md"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ANEW_PORT": _PORT, "COLUMNS": "160"}
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=680,
            check=False,
        )
    finally:
        Anew(tmp_path / "tour", {}).run("down")
    assert done.returncode == 0, (done.stdout[-3_000:], done.stderr[-3_000:])
    scans = [line for line in done.stdout.splitlines() if line.startswith('{"key"')]
    assert len(scans) == 9, "three scans of three people each"
    assert "Countess of Lovelace" in done.stdout
    assert done.stdout.count('"group": "adult"') == 2, done.stdout[-2_000:]


@pytest.mark.timeout(500)
def test_the_commands_of_the_other_documents_run(anew: Anew, people: Path, tmp_path: Path) -> None:
    """Every bash block of the pages on operations, time to live, tables and topics, on a store that is there."""
    anew.create("people", "hybrid=true", "partitions=2", "rt_partitions=4")
    anew.push("people", people)
    pages = ("docs/ttl.md", "docs/operations.md", "docs/tables.md", "docs/topics.md")
    blocks = [block for page in pages for block in _blocks(page)]
    assert len(blocks) >= 5
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", "set -euo pipefail\n" + "\n".join(blocks)],
        cwd=tmp_path,
        env={**anew.environment, "PATH": path, "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-3_000:], done.stderr[-3_000:])
    assert "age > 7d" in done.stdout
    assert "1 pruned" in done.stdout


@pytest.mark.timeout(820)
def test_the_commands_of_reprocessing_run(anew: Anew, tmp_path: Path) -> None:
    """The bash blocks of that page, one after another: the old class, then the new one, and the old generation goes."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", "set -euo pipefail\n" + "\n".join(_blocks("docs/reprocessing.md"))],
        cwd=tmp_path,
        env={**anew.environment, "PATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-3_000:], done.stderr[-3_000:])
    first, _, second = done.stdout.partition("generation 2 serves")
    assert "severe" in first.rpartition("UA1")[2]
    assert "fine" in second
    assert anew.here("job", "show", "delay_class")["live"] == 4
    # A record on which the function raised is named, and comes out once it was given to the mended one again.
    (letter,) = anew.here("job", "dead-letters", "strict_class")
    assert (letter["reason"], letter["record"]["key"]) == ("a delay is not negative: -3", "AA7")
    assert letter["replayed_at_ms"] is not None
    anew.here("job", "run", "strict_class@2")
    wait_until(lambda: anew.here("get", "strict_classes", "AA7")[0]["found"], "what was replayed")
    (found,) = anew.here("get", "strict_classes", "AA7")
    assert found["value"] == {"class": "fine"}
    anew.here("job", "stop", "strict_class@2")


def test_the_readme_names_only_targets_that_the_makefile_has() -> None:
    """Whatever the README tells a newcomer to call exists; continuous integration calls it."""
    makefile = (_ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"^make (\w+)", "\n".join(_blocks("README.md")), re.MULTILINE)
    assert named == ["demo", "test"]
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        assert f"make {target}" in (_ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_documents_that_the_readme_points_to_exist() -> None:
    """No link of the README leads nowhere, nor to a heading that is not there."""
    links = re.findall(r"\]\(([^)]+)\)", (_ROOT / "README.md").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not _leads_somewhere(link)] == []


def _leads_somewhere(link: str) -> bool:
    path, _, heading = link.partition("#")
    if not (_ROOT / path).exists():
        return False
    headings = re.findall(r"^#+ (.+)$", (_ROOT / path).read_text(encoding="utf-8"), re.MULTILINE) if heading else []
    return not heading or heading in [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings]
