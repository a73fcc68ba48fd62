"""Brokers that cannot be reached, or do not let us in: said at once, with the reason, and nothing is made."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from anew.api.location import LogLocation
from anew.brokers.cluster import Brokers
from anew.core.errors import InvalidRequest, Unreachable
from anew.log.interface import TopicSpec
from anew.log.kafka.kafka_log import KafkaLog
from anew.log.open import open_log
from anew.runtime.clock import now_ms
from anew.testing.builders import some_records
from anew.testing.log_reading import partition_of
from tests.cluster.commands import Anew
from tests.ports import port_of

_SECRET = "correct-horse-battery"


def _settings(tmp_path: Path, brokers: str, **more: str) -> Anew:
    port = str(port_of("never started"))
    return Anew(tmp_path / "home", {"ANEW_PORT": port, "ANEW_LOG": f"kafka://{brokers}", **more})


def test_brokers_that_do_not_answer_are_named(tmp_path: Path) -> None:
    """``anew up`` ends with 4 before it starts anything, and says which address did not answer."""
    anew = _settings(tmp_path, "127.0.0.1:9")
    answer = anew.run("up", "--detach")
    assert (answer.code, answer.error["code"]) == (4, "log_unreachable")
    assert "127.0.0.1:9" in answer.error["found"]
    assert not (anew.home / "cluster.json").exists()


def test_one_deadline_holds_for_an_operation() -> None:
    """Each operation on brokers that are not there ends in its time."""
    log = KafkaLog("127.0.0.1:9", clock=now_ms, timeout_seconds=1.0)
    at = partition_of(dataclasses.replace(TopicSpec("t_rt", "uid", 1)))
    for operation in (
        lambda: log.create_topic(TopicSpec("t_rt", "uid", 1)),
        lambda: log.append(at, some_records(1)),
        lambda: log.read(at, 0, 1),
        lambda: log.offsets(at),
        lambda: log.truncate_below(at, 1),
    ):
        began = time.monotonic()
        with pytest.raises(Unreachable):
            operation()
        assert time.monotonic() - began < 5.0
    log.close()


def test_wrong_security_is_told_without_secrets(tmp_path: Path, brokers: Brokers) -> None:
    """A client that speaks TLS and SASL to a plain listener is told that it cannot, and its password is nowhere."""
    file = tmp_path / "kafka.properties"
    lines = ["security.protocol=SASL_SSL", "sasl.mechanisms=PLAIN", "sasl.username=anew", f"sasl.password={_SECRET}"]
    file.write_text("\n".join(lines), encoding="utf-8")
    anew = _settings(tmp_path, brokers.bootstrap, ANEW_KAFKA_PROPERTIES_FILE=str(file))
    file.chmod(0o644)
    open_to_others = anew.run("up", "--detach")
    assert (open_to_others.code, open_to_others.error["code"]) == (3, "file_not_private")
    file.chmod(0o600)
    answer = anew.run("up", "--detach")
    assert (answer.code, answer.error["code"]) == (4, "log_unreachable")
    shown = anew.run("settings", "show")
    assert _SECRET not in answer.out + answer.err + shown.out + open_to_others.out


@pytest.mark.parametrize("line", ["no equals sign", "acks=1", f"isolation.level={_SECRET}", "auto.offset.reset=latest"])
def test_properties_that_are_not_the_users_to_choose_are_refused(tmp_path: Path, line: str) -> None:
    """What writes rest on cannot be changed by the file; the refusal names the setting and never the value."""
    file = tmp_path / "kafka.properties"
    file.write_text(f"# settings\n\n{line}\n", encoding="utf-8")
    location = LogLocation(kind="kafka", address="127.0.0.1:9", properties_file=str(file))
    with pytest.raises(InvalidRequest) as caught:
        open_log(location, clock=now_ms)
    assert caught.value.code == "bad_kafka_properties"
    assert "line 3" in str(caught.value.found)
    assert _SECRET not in str(caught.value)


@pytest.mark.parametrize("url", ["kafka://", "kafka://broker", "broker:9092", "kafka://broker:0", "kafka://a:1,b"])
def test_a_log_that_cannot_be_one_is_refused(tmp_path: Path, url: str) -> None:
    """The setting's own form is checked before anything is asked for."""
    anew = Anew(tmp_path / "home", {"ANEW_LOG": url})
    answer = anew.run_here("settings", "show")
    assert (answer.code, answer.error["code"]) == (2, "bad_log")
