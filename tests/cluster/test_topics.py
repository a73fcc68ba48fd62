"""Topics of our own on a real cluster: controller and writers are processes, the log is on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from anew.client.topicreads import Edge
from anew.runtime.connect import connect
from tests.cluster.commands import Anew, wait_until


def _ends(anew: Anew, name: str) -> list[int]:
    return [partition["end"] for partition in anew.here("topic", "show", name)["facts"]["partitions"]]


def test_a_topic_is_written_and_read_across_processes(anew: Anew, tmp_path: Path) -> None:
    """What a command wrote from a file and from its standard input, another process and a program read."""
    anew.done("topic", "create", "clicks", "--partitions", "3", "--columns", "user STRING, n INT")
    lines = [json.dumps({"user": f"u{number % 7}", "n": number}) for number in range(2_500)]
    (tmp_path / "clicks.jsonl").write_text("\n".join(lines[:2_000]))
    wrote = anew.done("topic", "write", "clicks", "--file", str(tmp_path / "clicks.jsonl"), "--key-field", "user")
    assert wrote["accepted"] == 2_000
    assert (
        anew.done("topic", "write", "clicks", "--key-field", "user", stdin="\n".join(lines[2_000:]))["accepted"] == 500
    )
    assert sum(_ends(anew, "clicks")) == 2_500
    found = anew.done("topic", "read", "clicks", "--limit", "2500")
    assert sorted(row["value"]["n"] for row in found) == [*range(2_500)]
    assert {row["key"] for row in found} == {f"u{number}" for number in range(7)}
    with connect(home=str(anew.home)) as cluster:
        topic = cluster.topic("clicks")
        topic.write([{"user": "py", "n": -1}], key="user")
        (newest,) = topic.read(Edge.NEWEST, limit=1)
        assert (newest.key, newest.value) == ("py", {"user": "py", "n": -1})


def test_the_controller_applies_retention(lone: Anew) -> None:
    """Records whose time is over go by themselves; the newest append of each partition stays."""
    lone.extra["ANEW_LOW_WATER_INTERVAL_SECONDS"] = "1"
    lone.done("up", "--detach", "--nodes", "1")
    lone.here("topic", "create", "short", "--retention-seconds", "1")
    for number in range(3):
        lone.here("topic", "write", "short", stdin=f"{number}\n")

    def only_the_newest() -> bool:
        (partition,) = lone.here("topic", "show", "short")["facts"]["partitions"]
        return bool((partition["begin"], partition["end"]) == (2, 3))

    wait_until(only_the_newest, "retention")
    found = [row["value"] for row in lone.here("topic", "read", "short")]
    assert found == [2]
    gone = lone.run_here("topic", "read", "short", "--from", "0")
    assert (gone.code, gone.error["code"]) == (1, "offset_out_of_range")


def test_a_deleted_topic_leaves_the_log(anew: Anew) -> None:
    """Its directory goes after the grace, and a topic that is made under its name begins empty."""
    anew.here("topic", "create", "passing")
    anew.here("topic", "write", "passing", stdin="1\n2\n")
    (directory,) = anew.home.glob("**/passing")
    anew.here("topic", "delete", "passing", "--yes")
    waiting: list[dict[str, Any]] = anew.here("gc", "--dry-run")["items"]
    # On a busy machine the grace of this cluster, two seconds, may be over before the answer.
    noted = [item for item in waiting if item["what"] == "topic" and "passing" in item["why"]]
    assert noted or not directory.exists()
    wait_until(lambda: not directory.exists(), "the topic to go")
    anew.here("topic", "create", "passing")
    assert _ends(anew, "passing") == [0]
