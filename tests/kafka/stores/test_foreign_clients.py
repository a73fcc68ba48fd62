"""Programs that know docs/log-format.md alone read our topics and write into them."""

from __future__ import annotations

import json
import struct
import time
from typing import Any

import pytest
from confluent_kafka import Producer

from anew.brokers.cluster import Brokers
from tests.cluster.commands import Anew, wait_until
from tests.kafka.foreign import PARTITIONS, Format, records_of


def _aside(bootstrap: str) -> list[Any]:
    return list(records_of(bootstrap, "asked_dead_letters", 1))


def test_a_consumer_of_somebody_else_reads_our_topics(anew: Anew, brokers: Brokers) -> None:
    """Keys, values, deletes and times come out as they were written, each in the partition that the page names."""
    anew.create("told", "hybrid=true", "partitions=2", f"rt_partitions={PARTITIONS}")
    given = int(time.time() * 1000) - 5_000
    rows: list[dict[str, Any]] = [
        {"key": "a", "value": {"name": "A", "age": 1}},
        {"key": "b", "value": {"name": "B", "age": 2}, "written_at": given},
        {"key": "c", "delete": True},
    ]
    anew.here("write", "told", "-", stdin="".join(json.dumps(row) + "\n" for row in rows))
    form = Format(anew.here("store", "show", "told"))
    found = {}
    for message in records_of(brokers.bootstrap, "told_rt"):
        headers = dict(message.headers() or [])
        key, value = form.read(message.key(), message.value())
        assert message.partition() == form.partition(key)
        kind, appended_ms = message.timestamp()
        assert kind == 2, "LogAppendTime"
        found[key] = (value, int(headers.get("anew-written-at", appended_ms)))
        assert headers["anew-origin"][1:] == b"dc-0"
    assert {key: value for key, (value, _) in found.items()} == {
        "a": {"name": "A", "age": 1},
        "b": {"name": "B", "age": 2},
        "c": None,
    }
    assert found["b"][1] == given
    assert abs(found["a"][1] - time.time() * 1000) < 60_000


@pytest.mark.case("rules:R8", "rules:R21", "stores:I6")
def test_a_producer_of_somebody_else_writes_to_our_topics(anew: Anew, brokers: Brokers) -> None:
    """What keeps the rules is applied, by the broker's time where none is given; the rest is counted, and no more."""
    anew.create("asked", "hybrid=true", "partitions=2", f"rt_partitions={PARTITIONS}")
    anew.here("push", "asked", "--empty")
    anew.write("asked", {"key": "old", "value": {"name": "ours", "age": 1}})
    form = Format(anew.here("store", "show", "asked"))
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all", "enable.idempotence": True})

    def send(datum: Any, value: bytes | None, headers: list[tuple[str, Any]], **changed: Any) -> None:
        record = {"key": form.key(datum), "partition": form.partition(datum), **changed}
        producer.produce(
            "asked_rt",
            value=value,
            headers=headers,
            on_delivery=lambda error, _message: failures.append(str(error)) if error else None,
            **record,
        )

    now_ms = int(time.time() * 1000)
    send("new", form.value({"name": "theirs", "age": 7}), [])
    send("old", None, [])
    # Dead letters, each for its own reason.
    send("bad", form.value({"name": "x", "age": 0}), [], partition=(form.partition("bad") + 1) % PARTITIONS)
    send("bad", form.value({"name": "x", "age": 0}), [("anew-written-at", str(now_ms + 3_600_000).encode())])
    send("bad", form.value({"name": "x", "age": 0}), [("anew-written-at", b"noon")])
    send("bad", form.value({"name": "x", "age": 0}), [], key=b"bad")
    send("bad", form.value({"name": "x", "age": 0}), [], key=b"\x00" + struct.pack(">I", 999) + b"\x06bad")
    send("bad", form.value({"name": "x", "age": 0}), [], key=None)
    send("bad", b"\x01nonsense", [])
    send("bad", b"\x00" + struct.pack(">I", 99_999) + b"\x02x\x00", [])
    send("last", form.value({"name": "theirs", "age": 8}), [("trace", b"1")])
    assert (producer.flush(30), failures) == (0, [])
    wait_until(lambda: anew.value("asked", "last") == {"name": "theirs", "age": 8}, "the last record")
    wait_until(lambda: anew.here("store", "show", "asked")["dead_letters"] == 8, "all dead letters to be counted")
    wait_until(lambda: len(_aside(brokers.bootstrap)) == 8, "all dead letters to be set aside")
    copies = [(message.key(), message.value(), dict(message.headers() or [])) for message in _aside(brokers.bootstrap)]
    assert len({headers["anew-dead-reason"] for _, _, headers in copies}) == 8
    assert [headers.get("anew-written-at") for _, _, headers in copies].count(b"noon") == 1
    aside = {(key, value): headers for key, value, headers in copies}
    headers = aside[form.key("bad"), b"\x01nonsense"]
    assert headers["anew-dead-reason"] == b"its value has no wire header"
    assert headers["anew-dead-topic"] == b"asked_rt"
    assert int(headers["anew-dead-partition"]) == form.partition("bad")
    assert headers.keys() == {f"anew-dead-{name}" for name in ("topic", "partition", "offset", "timestamp", "reason")}
    assert aside[None, form.value({"name": "x", "age": 0})]["anew-dead-reason"] == b"it has no key"
    assert anew.value("asked", "new") == {"name": "theirs", "age": 7}
    assert anew.value("asked", "old") is None
    assert anew.value("asked", "bad") is None
    done = anew.here("repush", "asked")
    assert done["ledger"]["skipped"] == 8
    assert anew.scan("asked") == {
        '"new"': {"name": "theirs", "age": 7},
        '"last"': {"name": "theirs", "age": 8},
    }
